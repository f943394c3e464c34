#!/usr/bin/env bash
# Builds the kernels of ci/vm.sh that Debian does not have, with nothing that the virtual machine does not need: for x86-64
# with names of anonymous mappings (prctl PR_SET_VMA), for aarch64 with pages of 64 KiB. Five minutes on two cores.
#
#   ci/vm/kernel.sh FOLDER ARCH
#
# FOLDER is filled once, with the layout of Debian's package: boot/vmlinuz-VERSION, usr/lib/modules/VERSION, usr/bin/busybox.
# Needs gcc (for aarch64 gcc-aarch64-linux-gnu), make, flex, bison, bc and libelf's headers (apt-get install build-essential flex
# bison bc libelf-dev);
# status 3 where something is not to be had.
set -euo pipefail

usage() { echo "usage: ci/vm/kernel.sh FOLDER x86_64|aarch64" >&2; exit 64; }
[[ $# -eq 2 ]] || usage
home=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1
[[ -e $folder/.packages ]] && exit 0
case $2 in
x86_64) debian=amd64 prefix= make=(make -s ARCH=x86_64) image=arch/x86/boot/bzImage ;;
aarch64)
    debian=arm64 prefix=aarch64-linux-gnu- image=arch/arm64/boot/Image
    make=(make -s ARCH=arm64 CROSS_COMPILE=$prefix)
    ;;
*) usage ;;
esac
for tool in gcc "${prefix}gcc" make flex bison bc; do
    command -v $tool >/dev/null || { echo "kernel.sh: needs $tool" >&2; exit 3; }
done

source=$folder.source
"$home/ci/unpack.sh" -a "$debian" trixie "$source" @linux-source busybox-static
tree=$(echo "$source"/usr/src/linux-source-*.tar.xz)
tree=${tree%.tar.xz}
tar -C "$source/usr/src" -xf "$tree.tar.xz"

# What ci/vm/init mounts and asks for, what programs take for granted, and the names.
config=$tree/kernel/configs/ebb.config
case $2 in
x86_64)
    cat >"$config" <<'END'
CONFIG_ANON_VMA_NAME=y
CONFIG_64BIT=y
CONFIG_SERIAL_8250=y
CONFIG_SERIAL_8250_CONSOLE=y
CONFIG_ACPI=y
END
    ;;
aarch64)
    cat >"$config" <<'END'
CONFIG_ARM64_64K_PAGES=y
CONFIG_TRANSPARENT_HUGEPAGE=y
CONFIG_SERIAL_AMBA_PL011=y
CONFIG_SERIAL_AMBA_PL011_CONSOLE=y
CONFIG_PCI_HOST_GENERIC=y
END
    ;;
esac
cat >>"$config" <<'END'
CONFIG_MULTIUSER=y
CONFIG_MODULES=y
CONFIG_PRINTK=y
CONFIG_TTY=y
CONFIG_UNIX98_PTYS=y
CONFIG_BLK_DEV_INITRD=y
CONFIG_RD_GZIP=y
CONFIG_BINFMT_ELF=y
CONFIG_BINFMT_SCRIPT=y
CONFIG_BLOCK=y
CONFIG_BLK_DEV=y
CONFIG_PCI=y
CONFIG_MAGIC_SYSRQ=y
CONFIG_VIRTIO_MENU=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_CONSOLE=y
CONFIG_NET=y
CONFIG_UNIX=y
CONFIG_INET=y
CONFIG_NET_9P=y
CONFIG_NET_9P_VIRTIO=y
CONFIG_NETWORK_FILESYSTEMS=y
CONFIG_9P_FS=y
CONFIG_EXT4_FS=y
CONFIG_OVERLAY_FS=y
CONFIG_TMPFS=y
CONFIG_DEVTMPFS=y
CONFIG_SHMEM=y
CONFIG_PROC_FS=y
CONFIG_PROC_SYSCTL=y
CONFIG_PROC_PAGE_MONITOR=y
CONFIG_SYSFS=y
CONFIG_CGROUPS=y
CONFIG_MEMCG=y
CONFIG_CGROUP_PIDS=y
CONFIG_CGROUP_SCHED=y
CONFIG_FAIR_GROUP_SCHED=y
CONFIG_CFS_BANDWIDTH=y
CONFIG_NAMESPACES=y
CONFIG_USER_NS=y
CONFIG_SECCOMP=y
CONFIG_FUTEX=y
CONFIG_EPOLL=y
CONFIG_SIGNALFD=y
CONFIG_TIMERFD=y
CONFIG_EVENTFD=y
CONFIG_AIO=y
CONFIG_ADVISE_SYSCALLS=y
CONFIG_MEMBARRIER=y
CONFIG_RSEQ=y
CONFIG_POSIX_TIMERS=y
CONFIG_HIGH_RES_TIMERS=y
CONFIG_FILE_LOCKING=y
CONFIG_CROSS_MEMORY_ATTACH=y
CONFIG_SWAP=y
END
"${make[@]}" -C "$tree" tinyconfig ebb.config >/dev/null
missing=$(grep '=y$' "$config" | grep -vxFf "$tree/.config" || true)
[[ -z $missing ]] || { echo "kernel.sh: the configuration lost $missing" >&2; exit 1; }
"${make[@]}" -C "$tree" -j"$(nproc)" "$(basename "$image")" modules

version=$("${make[@]}" -C "$tree" kernelrelease)
mkdir -p "$folder/boot" "$folder/usr/bin" "$folder/usr/lib/modules/$version"
cp "$tree/$image" "$folder/boot/vmlinuz-$version"
cp "$tree"/modules.{order,builtin} "$folder/usr/lib/modules/$version/"
cp "$source/usr/bin/busybox" "$folder/usr/bin/"
rm -rf "$source"
echo "linux-source $version" >"$folder/.packages"
