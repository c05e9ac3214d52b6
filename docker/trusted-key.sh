#!/bin/sh
# Accept an OpenPGP key FILE only if its first key is FINGERPRINT and has not expired; write it to KEYRING.
#
#   trusted-key.sh FILE FINGERPRINT KEYRING
set -eu
file=$1 fingerprint=$2 keyring=$3
listing=$(gpg --show-keys --with-colons "$file")
found=$(echo "$listing" | awk -F: '$1 == "fpr" { print $10; exit }')
[ "$found" = "$fingerprint" ] || { echo "error: the key is $found, not $fingerprint: do not use it" >&2; exit 1; }
expires=$(echo "$listing" | awk -F: '$1 == "pub" { print $7; exit }')
if [ -n "$expires" ]; then
  echo "note: the key $fingerprint expires on $(date -u -d "@$expires" +%F)"
  [ "$expires" -gt "$(date +%s)" ] || { echo "error: the key has expired: its owner has a renewed one" >&2; exit 1; }
fi
mkdir -p "$(dirname "$keyring")"
gpg --batch --yes --dearmor --output "$keyring" "$file"
