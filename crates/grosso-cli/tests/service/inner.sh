# Runs inside the namespaces: prepares the root directory, then executes systemd in place of this shell.
set -e
folder=$1
mount --make-rprivate /
mkdir -p "$folder/system"
mount -t tmpfs tmpfs "$folder/system"
mkdir "$folder"/system/{upper,work,root}
root=$folder/system/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/system/upper,workdir=$folder/system/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root"/dev/{net,pts,shm}
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 net/tun:10:200; do
    IFS=: read -r path major minor <<< "$node"
    mknod -m 666 "$root/dev/$path" c "$major" "$minor"
done
mknod -m 600 "$root/dev/console" c 1 3
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
mkdir "$root/out"
mount --bind "$folder/out" "$root/out"

# Keeps only those of the host's units that every boot needs.
units=$root/usr/lib/systemd/system
mkdir "$root/tmp/kept"
for unit in basic sysinit shutdown multi-user network-pre sockets timers paths slices local-fs local-fs-pre swap \
    umount final; do
    cp "$units/$unit.target" "$root/tmp/kept/"
done
cp "$units"/systemd-journald.service "$units"/systemd-journald{,-dev-log}.socket "$root/tmp/kept/"
rm -rf "${units:?}"/* "$root"/etc/systemd/system/* "$root"/usr/lib/systemd/system-generators/* "$root"/etc/init.d/*
mv "$root"/tmp/kept/* "$units/"
: > "$root/etc/fstab"
: > "$root/etc/machine-id"

cp -r "$folder"/files/. "$root/"
chmod 755 "$root"/usr/bin/grosso
ip link set lo up
chroot "$root" systemd-sysusers grosso.conf
cat > "$root/etc/systemd/system/check.service" << 'UNIT'
[Unit]
After=systemd-journald.service
[Service]
Type=oneshot
ExecStart=/bin/bash /check.sh
ExecStopPost=/bin/systemctl --no-block --force poweroff
StandardOutput=append:/out/log
StandardError=append:/out/log
UNIT
printf '[Unit]\nRequires=basic.target\nWants=systemd-journald.service check.service\nAfter=basic.target\n' \
    > "$root/etc/systemd/system/check.target"
cd "$root"
mkdir old
pivot_root . old
umount -l old
# As on a normal system, the processes of a unit get separate mounts, for example for the unit's credentials.
mount --make-rshared /
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=check.target --log-target=journal --show-status=no < /dev/null
