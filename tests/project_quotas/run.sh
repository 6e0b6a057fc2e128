#!/bin/bash
# Runs tests of disk limits on a kernel with project quotas, in a machine that QEMU emulates (a minute or two).
#
# usage: tests/project_quotas/run.sh KERNEL [pytest arguments]
#
# KERNEL is the unpacked package of a Debian kernel, which need not be installed:
#   apt-get install qemu-system-x86 busybox-static xfsprogs cpio kmod
#   apt-get download linux-image-6.1.0-56-amd64 && dpkg -x linux-image-*.deb KERNEL
#
# LIMIT_MIB: the disk limit of the jobs (64). LIMIT_S: so long may it all take (900). SHOW_S: show what runs so often.
#
# The guest has this machine's files, read-only, and two disks, ext4 and XFS, mounted with prjquota.
set -eu
kernel=$(realpath "$1")
shift
project=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
release=$(basename "$kernel"/lib/modules/*)
modules=$kernel/lib/modules/$release
[ -e "$modules/modules.dep" ] || depmod -b "$kernel" "$release"
mkdir -p "$work"/root/{bin,lib,proc,sys,dev,host} "$project/.cache"
cp "$(command -v busybox)" "$work/root/bin/busybox"

for name in crc32c_generic virtio_pci virtio_blk 9pnet_virtio 9p ext4 xfs quota_v2; do
    line=$(grep "/$name.ko:" "$modules/modules.dep")
    needed=$(tr ' ' '\n' <<< "${line#*:}" | tac) # the first that is needed is named last
    for file in $needed "${line%%:*}"; do
        [ -e "$work/root/lib/$(basename "$file")" ] && continue
        cp "$modules/$file" "$work/root/lib/"
        basename "$file" >> "$work/root/order"
    done
done

cat > "$work/root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/lib/$module"; done < /order
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host || poweroff -f
for folder in proc sys dev; do mount --move /$folder /host/$folder; done
mount -t cgroup2 cgroup2 /host/sys/fs/cgroup
mkdir -p /host/dev/shm
for folder in dev/shm run tmp mnt; do mount -t tmpfs tmpfs /host/$folder; done
mkdir /host/mnt/ext4 /host/mnt/xfs /host/tmp/home
mount -t ext4 -o prjquota /host/dev/vda /host/mnt/ext4
mount -t xfs -o prjquota /host/dev/vdb /host/mnt/xfs
ip link set lo up
hostname guest
cp /tests /host/run/tests
exec switch_root /host /bin/bash /run/tests
INIT
chmod +x "$work/root/init"
cat > "$work/root/tests" <<TESTS
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp/home PYTHONDONTWRITEBYTECODE=1
export HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis # its own folder cannot be made in a fresh checkout
export CLOUDML_TEST_PROJECT_QUOTAS=/mnt/ext4:/mnt/xfs CLOUDML_TEST_DISK_LIMIT_MIB=${LIMIT_MIB:-64}
cd "$project"
mount -t tmpfs tmpfs .cache
if [ -n "${SHOW_S:-}" ]; then # what hangs, for those who look for it
    (while sleep "${SHOW_S:-}"; do ps axo pid,ppid,user,stat,wchan:20,time,args | cut -c1-200
        ls -laR /mnt/*/*/ledger /mnt/*/*/jobs
        find /mnt -name '*.log' -o -name log -o -name spawner.err | while read -r file; do echo "== \$file"; tail -n 60 "\$file"; done
    done) &
fi
.venv/bin/python -m pytest -n 0 -p no:cacheprovider -rA tests/integration/engine/test_project_quotas.py $*
echo "pytest has ended with \$?"
echo o > /proc/sysrq-trigger
sleep 60
TESTS
(cd "$work/root" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initrd"
truncate -s $((2048 + 5 * ${LIMIT_MIB:-64}))M "$work/ext4" "$work/xfs"
mkfs.ext4 -q -F -O quota,project -E quotatype=prjquota "$work/ext4"
mkfs.xfs -q "$work/xfs"
timeout "${LIMIT_S:-900}" qemu-system-x86_64 -M q35 -cpu max -accel tcg,thread=multi -smp 2 -m 2G -nographic -no-reboot -nodefaults \
    -serial stdio -kernel "$kernel"/boot/vmlinuz-* -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1" \
    -fsdev local,id=files,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=files,mount_tag=host \
    -drive "file=$work/ext4,format=raw,if=virtio" -drive "file=$work/xfs,format=raw,if=virtio" \
    < /dev/null | tee "$work/said"
grep -q "pytest has ended with 0" "$work/said"
