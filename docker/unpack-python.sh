#!/bin/sh
# Put the CPython of another Debian suite under /opt/cpython/VERSION, from that suite's own packages.
#
#   unpack-python.sh VERSION SUITE MINIMUM [stale-ok]
#
# The packages are unpacked, not installed: nothing outside /opt/cpython changes, and the C library stays the image's
# own. Which modules that C library cannot load is tried at the end. The mirror is the one that the image uses for its
# own suite; apt checks Debian's signature. MINIMUM is the oldest version accepted. `stale-ok` takes a Release file
# past its Valid-Until date, which a lagging mirror has for the moving suites; MINIMUM bounds what it can hand out.
set -eu
version=$1 suite=$2 minimum=$3 stale=${4:-}
root=/opt/cpython/$version

# shellcheck source=/dev/null
. /etc/os-release
# shellcheck disable=SC2016  # apt expands these
mirror=$(apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
  awk -v suite="$VERSION_CODENAME" '$2 == suite { print $1; exit }')
[ -n "$mirror" ] || { echo "error: no apt source for $VERSION_CODENAME in this image" >&2; exit 1; }

options="signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
if [ "$stale" = stale-ok ]; then
  options="$options check-valid-until=no"
  echo "note: the Release file of $suite may be past its Valid-Until; accepted for python$version >= $minimum only"
fi
work=$(mktemp -d)
cd "$work"
mkdir -p lists/partial
echo "deb [$options] $mirror $suite main" > sources.list
cat > apt.conf << END
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$work/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
export APT_CONFIG="$work/apt.conf"
apt-get -qq update
found=$(apt-cache madison "python$version" | awk -F ' *[|] *' 'NR == 1 { print $2 }')
[ -n "$found" ] || { echo "error: $suite has no package python$version" >&2; exit 1; }
dpkg --compare-versions "$found" ge "$minimum" ||
  { echo "error: python$version $found in $suite is older than $minimum" >&2; exit 1; }

for package in "python$version-minimal" "python$version" "libpython$version-minimal" "libpython$version-stdlib" \
  "libpython$version-dev"; do
  apt-get -qq download "$package=$found"
done
mkdir -p "$root"
for package in ./*.deb; do dpkg-deb --fsys-tarfile "$package"; done |
  tar -x -i -C "$root" --strip-components=2 --exclude=./usr/share --exclude=./usr/src ./usr
# Debian's pyconfig.h only forwards to a directory that is on the search path of /usr alone.
cp "$root/include/x86_64-linux-gnu/python$version/pyconfig.h" "$root/include/python$version/pyconfig.h"
printf 'python%s\t%s\t%s\n' "$version" "$found" "$suite" > "$root/packages.tsv"
rm -rf "$work"

cd "$root/lib/python$version/lib-dynload"
broken=
for module in *.so; do
  name=${module%%.*}
  "$root/bin/python$version" -c "import $name" 2> /dev/null || broken="$broken $name"
done
echo "python$version $found from $suite; modules that do not load here:${broken:- none}"
