#!/usr/bin/env bash
# Runs a command on another kernel: in a virtual machine with this machine's files, whose kernel is Debian's newest
# of a release, with cgroup version 2, Yama and swap.
#
#   ci/vm.sh [-o FOLDER] COMMAND [ARGUMENT]...
#
# The command is root in this folder, sees every file of this machine at its own path and may write anywhere: that
# goes to a disk that is thrown away. What it writes into $OUT comes back, in FOLDER. Its output, errors among it,
# is ours; so is its status. It has no network. /dev/vdb is a disk for swap, made ready: `swapon /dev/vdb`.
#
#   EBB_VM_RELEASE=trixie  Debian's release that the kernel is from; or "named", for one that knows names of anonymous
#                          mappings, which ci/vm/kernel.sh builds, for x86-64
#   EBB_VM_ARCH=x86_64     or aarch64, which needs EBB_VM_ROOT
#   EBB_VM_KERNEL=         16k: Debian's kernel with pages of 16 KiB, for aarch64; 64k: of 64 KiB, which ci/vm/kernel.sh builds
#   EBB_VM_ROOT=/          the files that the command sees: of this machine, or a folder that ci/unpack.sh -d filled; the
#                          command's folder is / then
#   EBB_VM_CLOCK=          instructions: time passes with the instructions of an emulated processor, and at once while all
#                          sleep, so that a busy host costs no time in the machine
#   EBB_VM_CPUS=1  EBB_VM_MEMORY=4G  EBB_VM_TIMEOUT=3600 (seconds)  EBB_VM_ACCEL=kvm|tcg
#
# Needs qemu-system-x86, for aarch64 qemu-system-arm and qemu-user; the kernel is unpacked under target/vm, never installed
# (ci/unpack.sh). Status 3 where that is not to be had, 124 where the time is over, 125 where the machine ended without
# telling how the command did.
# Without hardware virtualization the processor is emulated, some ten times slower; a start takes 15 s.
set -euo pipefail
home=$(cd "$(dirname "$0")/.." && pwd)

keep=
[[ ${1:-} == -o ]] && { mkdir -p "$2" && keep=$(cd "$2" && pwd); shift 2; }
[[ $# -ge 1 ]] || { echo "usage: ci/vm.sh [-o FOLDER] COMMAND [ARGUMENT]..." >&2; exit 64; }
arch=${EBB_VM_ARCH:-x86_64}
files=${EBB_VM_ROOT:-/}
release=${EBB_VM_RELEASE:-trixie}
# Runs a program of the machine here.
emulate=()
case $arch in
x86_64)
    package=qemu-system-x86 debian=amd64 console=ttyS0
    machine=(-cpu max,la57=off)
    ;;
aarch64)
    package=qemu-system-arm debian=arm64 console=ttyAMA0 emulate=(qemu-aarch64)
    # Knows pages of 4, 16 and 64 KiB.
    machine=(-machine virt,gic-version=3 -cpu neoverse-n1)
    [[ $files != / ]] || { echo "vm.sh: aarch64 needs EBB_VM_ROOT" >&2; exit 64; }
    ;;
*) echo "vm.sh: $arch: not known; x86_64 or aarch64" >&2; exit 64 ;;
esac
for tool in "qemu-system-$arch" "${emulate[@]}"; do
    command -v "$tool" >/dev/null || { echo "vm.sh: needs $tool (apt-get install $package qemu-user)" >&2; exit 3; }
done

vm=$home/target/vm
name=$release${EBB_VM_KERNEL:+-$EBB_VM_KERNEL}
[[ $arch == x86_64 ]] || name=$name-$arch
root=$vm/$name
mkdir -p "$vm"
# Two machines may start at once.
exec 9>"$vm/$name.lock"
flock 9
case $release${EBB_VM_KERNEL:-} in
named | *64k) "$home/ci/vm/kernel.sh" "$root" "$arch" ;;
*)
    "$home/ci/unpack.sh" -a "$debian" "$release" "$root" "@linux-image-$debian${EBB_VM_KERNEL:+-$EBB_VM_KERNEL}" \
        busybox-static
    ;;
esac
# Releases have these at one of two places.
first() { { ls -d "$@" 2>/dev/null || true; } | head -n 1; }
modules=$(first "$root"/{usr/,}lib/modules/*)
version=$(basename "$modules")
kernel=$(first "$root/boot/vmlinuz-$version" "$modules/vmlinuz")
busybox=$(first "$root"/{usr/,}bin/busybox)

# What the kernel needs to see the files: a shell, and the modules that ci/vm/init asks for.
initramfs=$vm/$name.initramfs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ ! $initramfs -nt $root/.packages || ! $initramfs -nt $home/ci/vm/init ]]; then
    tree=$work/initramfs
    mkdir -p "$tree/bin" "$tree/lib/modules/$version"
    cp "$busybox" "$tree/bin/"
    install -m 755 "$home/ci/vm/init" "$tree/init"
    cp "$modules"/modules.{order,builtin} "$tree/lib/modules/$version/"
    wanted='virtio|virtio_ring|virtio_pci[a-z_]*|virtio_blk|virtio_console|9p|9pnet|9pnet_virtio|netfs|fscache|ext4|jbd2|mbcache'
    wanted=".*/($wanted|crc16|crc32c_generic|libcrc32c|overlay)\.ko(\.xz)?"
    # The others are hundreds of megabytes.
    find "$modules" -regextype egrep -regex '.*\.(ko(\.xz)?|dtbo?)' ! -regex "$wanted" -delete
    find "$modules" -regextype egrep -regex "$wanted" |
        while read -r module; do
            case $module in
            *.xz) xz -dc "$module" >"$tree/lib/modules/$version/$(basename "${module%.xz}")" ;;
            *) cp "$module" "$tree/lib/modules/$version/" ;;
            esac
        done
    "${emulate[@]}" "$busybox" depmod -b "$tree" "$version"
    (cd "$tree" && find . | "${emulate[@]}" "$busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$initramfs.new"
    mv "$initramfs.new" "$initramfs"
fi
exec 9>&-

# Disks that take no room until they are written to.
export PATH=$PATH:/usr/sbin:/sbin
truncate -s 8G "$work/scratch"
mke2fs -q -t ext4 -E lazy_itable_init=1,nodiscard "$work/scratch"
truncate -s 1G "$work/swap"
mkswap -q "$work/swap" 2>/dev/null

out=${keep:-$work/out}
mkdir -p "$out" "$work/told"
cat >"$work/told/machine" <<END
told=$work/told
out=$out
END
# The command with this shell's folder and variables; apart from it, what stays when it has ended is ended too.
{
    declare -px | grep -E '^declare -x (PATH|HOME|LANG|LC_ALL|USER|LOGNAME|CARGO_[A-Z_]*|RUST[A-Z_]*|EBB_[A-Z_]*|PROPTEST_[A-Z_]*)=' || true
    folder=$PWD
    [[ $files == / ]] || folder=/
    printf 'export OUT=%q TERM=dumb\ncd %q\nexec' "$out" "$folder"
    printf ' %q' "$@"
    echo
} >"$work/told/command"
cat >"$work/told/start" <<'END'
told=$(dirname "$0") group=/sys/fs/cgroup/command
{
    bash -c "echo \$\$ >$group/cgroup.procs; exec bash $told/command" </dev/null 2>&1
    echo $? >"$told/status"
    echo 1 >$group/cgroup.kill
} | cat >/dev/vport0p1
sync
echo o >/proc/sysrq-trigger
sleep 60
END

accel=${EBB_VM_ACCEL:-tcg}
[[ -z ${EBB_VM_ACCEL:-} && -w /dev/kvm && $arch == x86_64 && $(uname -m) == x86_64 ]] && grep -qE '^flags.* (svm|vmx)( |$)' /proc/cpuinfo && accel=kvm
clock=()
[[ $accel == kvm || ${EBB_VM_CLOCK:-} != instructions ]] || { accel=tcg,thread=single && clock=(-icount shift=1,sleep=off); }
# No "stdio": at the end of our input it would be shut.
mkfifo "$work/output"
cat "$work/output" &
status=0
timeout --foreground "${EBB_VM_TIMEOUT:-3600}" "qemu-system-$arch" \
    -accel "$accel" "${clock[@]}" "${machine[@]}" -smp "${EBB_VM_CPUS:-1}" -m "${EBB_VM_MEMORY:-4G}" \
    -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$kernel" -initrd "$initramfs" -append "console=$console panic=-1 mitigations=off no_timer_check" \
    -serial "file:$work/console" \
    -chardev "file,id=output,path=$work/output" -device virtio-serial -device virtserialport,chardev=output \
    -drive "file=$work/scratch,format=raw,if=none,id=scratch,cache=unsafe" -device virtio-blk,drive=scratch \
    -drive "file=$work/swap,format=raw,if=none,id=swap,cache=unsafe" -device virtio-blk,drive=swap \
    -virtfs "local,path=$files,mount_tag=host,security_model=none,readonly=on,multidevs=remap" \
    -virtfs "local,path=$work/told,mount_tag=told,security_model=none" \
    -virtfs "local,path=$out,mount_tag=out,security_model=none" </dev/null || status=$?
# If it never opened it.
: <>"$work/output"
wait
if [[ $status -eq 124 || ! -s $work/told/status ]]; then
    { sed -n '/Run \/init/,$p' "$work/console" | grep . || cat "$work/console"; } | tail -n 40 >&2
    echo "vm.sh: above is the end of the machine's console" >&2
    [[ $status -eq 124 ]] && { echo "vm.sh: not done in ${EBB_VM_TIMEOUT:-3600} s" >&2; exit 124; }
    echo "vm.sh: the machine ended without a word of how the command did" >&2
    exit 125
fi
exit "$(cat "$work/told/status")"
