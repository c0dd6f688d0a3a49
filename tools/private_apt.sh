# Packages of another Debian suite without installing anything: apt-get with folders of its own. Sourced by the set-up
# scripts; the machine's package lists, sources and installed packages stay as they are.

debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# debian_mirror: prints the address of a mirror: NYBL_DEBIAN_MIRROR, or on Debian the one apt uses. Nothing where there is
# none.
debian_mirror() {
    if [[ -n ${NYBL_DEBIAN_MIRROR:-} ]]; then
        echo "$NYBL_DEBIAN_MIRROR"
    elif grep -qx ID=debian /etc/os-release; then
        apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1
    fi
}

# use_suite DIR SUITE: from here on apt-get in this shell sees that suite alone, with its folders in DIR (downloads go to
# DIR/cache/archives). Of the machine's settings it keeps how to fetch (proxies) and none of the hooks.
use_suite() {
    local dir=$1 suite=$2 mirror
    mirror=$(debian_mirror)
    [[ -n $mirror ]] || { echo "apt names no Debian package source here: set NYBL_DEBIAN_MIRROR" >&2; return 1; }
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    : >"$dir/status"
    printf 'Types: deb deb-src\nURIs: %s\nSuites: %s\nComponents: main\nArchitectures: amd64\nSigned-By: %s\n' \
        "$mirror" "$suite" "$debian_keyring" >"$dir/suite.sources"
    {
        env -u APT_CONFIG apt-config dump | grep '^Acquire::' || true
        cat <<CONF
Dir::State "$dir"; Dir::State::lists "$dir/lists"; Dir::State::status "$dir/status"; Dir::Cache "$dir/cache";
Dir::Etc::sourcelist "$dir/suite.sources"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::parts "/dev/null";
APT::Architecture "amd64"; APT::Sandbox::User "$(id -un)"; Acquire::Languages "none"; Acquire::Check-Valid-Until "false";
CONF
    } >"$dir/conf"
    export APT_CONFIG=$dir/conf
    apt-get update -qq -o APT::Update::Error-Mode=any
}
