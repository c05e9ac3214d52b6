#!/bin/sh
# Make AMD's repository of ROCm VERSION known to apt or dnf, its packages signed by AMD's key and no other.
#
#   amd-repository.sh VERSION
#
# The fingerprint is the one of ROCm/ROCm#854 ("ROCm Release Manager"). Never run: the repository was not reachable.
set -eu
version=$1
site=https://repo.radeon.com/rocm
here=$(dirname "$0")
# shellcheck source=/dev/null
. /etc/os-release
case $ID in
  ubuntu | debian) keyring=/etc/apt/keyrings/rocm.gpg ;;
  *) keyring=/etc/pki/rpm-gpg/RPM-GPG-KEY-rocm ;;
esac
curl -fsSL --proto '=https' -o /tmp/rocm.gpg.key "$site/rocm.gpg.key"
sh "$here/trusted-key.sh" /tmp/rocm.gpg.key CA8BB4727A47B4D09B4EE8969386B48A1A693C5C "$keyring"
case $ID in
  ubuntu | debian)
    echo "deb [arch=amd64 signed-by=$keyring] $site/apt/$version $VERSION_CODENAME main" > /etc/apt/sources.list.d/rocm.list
    printf 'Package: *\nPin: release o=repo.radeon.com\nPin-Priority: 600\n' > /etc/apt/preferences.d/rocm
    ;;
  *)
    gpg --enarmor < "$keyring" | sed 's/ARMORED FILE/PUBLIC KEY BLOCK/' > "$keyring.asc" # rpm reads armour only
    printf '[rocm]\nname=ROCm %s\nbaseurl=%s/el8/%s/main\ngpgcheck=1\ngpgkey=file://%s.asc\n' \
      "$version" "$site" "$version" "$keyring" > /etc/yum.repos.d/rocm.repo
    ;;
esac
rm /tmp/rocm.gpg.key
