# Boots systemd as the first process of new namespaces, over a temporary copy of this host's files.
# boot.sh FOLDER: runs the units, programs and check.sh of FOLDER inside, and writes the output of check.sh to
# FOLDER/out/log.
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
# The directory of a control group can only be removed after its last process has ended.
find "$folder/cgroup/$name" -depth -type d -exec rmdir {} + 2> /dev/null || true
' _ "$folder" "$name"
