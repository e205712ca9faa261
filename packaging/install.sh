#!/bin/sh
# Installs Pronghorn below PREFIX, by default /usr/local, as root, or below a folder of your own:
#   ./install.sh
#   PREFIX=$HOME/.local ./install.sh
# `./install.sh --remove` takes away what it has put there.
set -eu
umask 022 # what root installs is for all users
cd "$(dirname "$0")"
prefix=${PREFIX:-/usr/local}

# Static builds have no extension.
files() {
    find bin share ! -type d
    [ ! -d lib/pronghorn ] || find lib/pronghorn ! -type d
}

if [ "${1:-}" = --remove ]; then
    files | while read -r file; do
        rm -f "$prefix/$file"
    done
    for folder in lib/pronghorn share/doc/pronghorn; do
        rmdir "$prefix/$folder" 2>/dev/null || true
    done
    rm -rf "${prefix:?}/share/pronghorn"
    echo "removed from $prefix"
    exit 0
fi
if [ $# -gt 0 ]; then
    echo "usage: [PREFIX=/usr/local] ./install.sh [--remove]" >&2
    exit 2
fi
mkdir -p "$prefix" 2>/dev/null || true
if [ ! -w "$prefix" ]; then
    echo "error: $prefix can't be written to: type \`sudo ./install.sh\`, or \`PREFIX=\$HOME/.local ./install.sh\`" >&2
    exit 1
fi
files | while read -r file; do
    mkdir -p "$prefix/$(dirname "$file")"
    # In one step: a server that runs keeps the file that it was started from.
    cp "$file" "$prefix/$file.new"
    mv "$prefix/$file.new" "$prefix/$file"
done
"$prefix/bin/pronghorn" version
"$prefix/bin/pronghorn" extension status || true
case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "$prefix/bin is not in PATH: add it" ;;
esac
echo "in the directory of an application, \`pronghorn serve\` serves it; PHP packages and examples are in $prefix/share/pronghorn"
