#!/usr/bin/env bash
# The Debian packages: made, unpacked into clean roots, compiled against, and run where nothing else is.
source "$NYBL_SOURCE_DIR/tests/script.sh"
example=$NYBL_SOURCE_DIR/examples/matmul.c
root=$scratch/root clean=$scratch/clean
unset CFLAGS CXXFLAGS LDFLAGS

for tool in cpack dpkg-deb dpkg-shlibdeps; do
    if ! command -v $tool >/dev/null; then
        skip "Debian packages" "$tool is not installed"
        finish
    fi
done

make_packages() { cpack --config "$NYBL_BUILD_DIR/CPackConfig.cmake" -B "$scratch/debs"; }
# As ./dev deb does: the time that files get is the commit's.
same_again() {
    local again
    export SOURCE_DATE_EPOCH=1700000000
    for again in one two; do
        cpack --config "$NYBL_BUILD_DIR/CPackConfig.cmake" -B "$scratch/$again" && sleep 1 || return 1
    done
    diff <(cd "$scratch/one" && sha256sum ./*.deb) <(cd "$scratch/two" && sha256sum ./*.deb) || because "packages made twice differ"
}

deb() { echo "$scratch"/debs/"$1"_*.deb; }

# field PACKAGE FIELD PATTERN
field() { prints "$3" dpkg-deb -f "$(deb "$1")" "$2" || because "$1: $2 is '$(dpkg-deb -f "$(deb "$1")" "$2")'"; }

describe_themselves() {
    local version
    version=$(dpkg-deb -f "$(deb libnybl0)" Version)
    field libnybl0 Depends 'libc6 (>= ' && field libnybl0 Section '^libs$' && field nybl-tools Depends libc6 &&
        field libnybl-dev Depends "^libnybl0 (= $version)$" && field libnybl-dev Description Matrix &&
        dpkg-deb -e "$(deb libnybl0)" "$scratch/control" && prints "^libnybl 0 libnybl0" cat "$scratch/control/shlibs"
}

# Every file in one package only, and all of them together what `cmake --install` gives (and the licences).
share_the_files() {
    local package
    for package in libnybl0 libnybl-dev nybl-tools; do
        dpkg-deb -c "$(deb $package)" | awk '$1 !~ /^d/ { print $6 }' | grep -v '/copyright$' || return 1
    done | sed 's|^\./usr/||' | sort >"$scratch/packaged"
    DESTDIR=$scratch/installed cmake --install "$NYBL_BUILD_DIR" --prefix /usr >/dev/null &&
        (cd "$scratch/installed/usr" && find . -not -type d | sed 's|^\./||' | sort) >"$scratch/all" &&
        diff "$scratch/packaged" "$scratch/all" || because "packages (<) and installation (>) have different files"
}

unpack() {
    local package
    for package in libnybl0 libnybl-dev nybl-tools; do
        dpkg-deb -x "$(deb $package)" "$root" || return 1
    done
    dpkg-deb -x "$(deb libnybl0)" "$clean" && dpkg-deb -x "$(deb nybl-tools)" "$clean"
}

compile_by_pkg_config() {
    local pc
    pc=$(dirname "$(find "$root" -name nybl.pc)")
    cc -std=c99 "$example" -o "$clean/by-pkg-config" $(PKG_CONFIG_LIBDIR=$pc pkg-config --cflags --libs nybl)
}

compile_by_cmake() {
    cmake -G Ninja -S "$NYBL_SOURCE_DIR/tests/package/c_only" -B "$scratch/c_only" "-DNYBL_EXAMPLE=$example" \
        "-DCMAKE_PREFIX_PATH=$root/usr" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_RPATH=ON &&
        cmake --build "$scratch/c_only" && cp "$scratch/c_only/app_shared" "$clean/by-cmake"
}

# The C and C++ libraries that the packages depend on, at the places where this machine has them.
add_dependencies() {
    local library
    ldd "$clean/by-cmake" "$clean/usr/bin/nybl-pack" "$(find "$clean" -name 'libnybl.so.0')" |
        grep -oE '/[^ ]+\.so[^ ]*' | grep -v "^$scratch" | sort -u | while read -r library; do
        mkdir -p "$clean$(dirname "$library")" && cp "$library" "$clean$library"
    done
    mkdir -p "$clean/etc" && find "$clean/usr/lib" -name 'libnybl.so.0' -printf '/%P\n' | xargs dirname |
        sed 's|^|/usr/lib|; s|/$||' >"$clean/etc/ld.so.conf" && ldconfig -r "$clean"
}

# in_clean_root PATTERN COMMAND...: runs in the root of the two packages, as root or in a user namespace.
in_clean_root() {
    local pattern=$1
    shift
    prints "$pattern" "${chroot[@]}" "$clean" "$@"
}

check "the Debian packages are made" make_packages
check "the Debian packages describe themselves" describe_themselves
check "the Debian packages are the same when they are made again" same_again
check "the Debian packages have every installed file once" share_the_files
check "the Debian packages unpack into a clean root" unpack
check "a C program compiles against the packages by pkg-config" compile_by_pkg_config
check "a C program compiles against the packages by CMake" compile_by_cmake

check "a clean root has what the packages depend on" add_dependencies
chroot=()
for way in "chroot" "unshare -r chroot"; do
    if [[ -z ${chroot[*]} ]] && $way / true 2>/dev/null; then
        read -ra chroot <<<"$way"
    fi
done
if ((${#chroot[@]})); then
    check "nybl-pack runs in a clean root" in_clean_root 'usage: nybl-pack' /usr/bin/nybl-pack --help
    check "a C program runs in a clean root, by pkg-config" in_clean_root 'y\[0\] = .*, by ' /by-pkg-config
    check "a C program runs in a clean root, by CMake" in_clean_root 'y\[0\] = .*, by ' /by-cmake
else
    skip "programs run in a clean root" "neither chroot nor a user namespace is allowed here"
fi
finish
