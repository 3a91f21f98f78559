# Boots systemd as the first process of namespaces of its own, over a copy of this machine's files that keeps nothing.
# boot.sh FOLDER: its units, programs and check.sh run inside, and what check.sh prints is FOLDER/out/log.
set -e
folder=$1
name=grosso-service-$$
mkdir -p "$folder/cgroup" "$folder/out"
exec unshare -m --propagation private bash -c '
folder=$1 name=$2
mount -t cgroup2 cgroup2 "$folder/cgroup"
mkdir "$folder/cgroup/$name"
(
    echo $BASHPID > "$folder/cgroup/$name/cgroup.procs"
    exec timeout -k 2 100 unshare -C -m -p -n -u -i --fork --kill-child bash "$folder/inner.sh" "$folder"
)
# The folder of the control group can go when its last process has.
find "$folder/cgroup/$name" -depth -type d -exec rmdir {} + 2> /dev/null || true
' _ "$folder" "$name"
