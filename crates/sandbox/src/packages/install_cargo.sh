# Downloads crates into /packages/tree, which is mounted at /.cargo later. No code of a crate runs: curl gets the archives.
set -eu -o pipefail
while IFS= read -r -d '' setting; do export "$setting"; done
# The registry can have a name of this machine, and is reached through the proxy, too.
unset NO_PROXY no_proxy
mkdir -p /packages/archives /packages/tree/crates
# The token is on no command line.
download() {
  {
    if [[ -n ${REGISTRY_TOKEN:-} ]]; then printf 'header = "Authorization: %s"\n' "$REGISTRY_TOKEN"; fi
    cat
  } | curl --silent --no-progress-meter --write-out '%{onerror}%{url}: %{errormsg}\n' --fail --fail-early --location --globoff --proto =https --retry 2 --parallel --parallel-max 16 --config - >&2
}
printf 'url = "%sconfig.json"\noutput = "/packages/config.json"\n' "$REGISTRY_INDEX" | download
config=$(tr -d '\n' </packages/config.json)
if ! [[ $config =~ \"dl\"[[:space:]]*:[[:space:]]*\"(https://[^\"\\]+)\" ]]; then
  echo 'the registry names no address for downloads that begins with `https://`' >&2
  exit 1
fi
template=${BASH_REMATCH[1]}
if [[ $template != *'{'* ]]; then template+='/{crate}/{version}/download'; fi
# Returns the folder of a crate in a registry that sorts them by name.
prefix_of() {
  case ${#1} in
    1 | 2) printf '%s' "${#1}" ;;
    3) printf '3/%s' "${1:0:1}" ;;
    *) printf '%s/%s' "${1:0:2}" "${1:2:2}" ;;
  esac
}
: >/packages/wanted
: >/packages/sums
while read -r name version hash; do
  url=${template//'{crate}'/"$name"}
  url=${url//'{version}'/"$version"}
  url=${url//'{prefix}'/"$(prefix_of "$name")"}
  url=${url//'{lowerprefix}'/"$(prefix_of "${name,,}")"}
  url=${url//'{sha256-checksum}'/"$hash"}
  printf 'url = "%s"\noutput = "/packages/archives/%s-%s.crate"\n' "$url" "$name" "$version" >>/packages/wanted
  printf '%s  /packages/archives/%s-%s.crate\n' "$hash" "$name" "$version" >>/packages/sums
done </graphrun/crates
if [[ -s /packages/wanted ]]; then
  download </packages/wanted
  sha256sum --check --quiet --strict /packages/sums >&2
fi
while read -r name version hash; do
  # An archive that has the folder of another crate would replace it.
  mkdir /packages/unpacked
  tar --extract --gzip --file="/packages/archives/$name-$version.crate" --directory=/packages/unpacked --no-same-owner --no-same-permissions
  unpacked=(/packages/unpacked/*)
  folder=/packages/unpacked/$name-$version
  if [[ ${#unpacked[@]} != 1 || ${unpacked[0]} != "$folder" || ! -d $folder || -L $folder ]]; then
    echo "the archive of $name $version has other files than those of its folder" >&2
    exit 1
  fi
  rm -rf "$folder/.cargo-checksum.json"
  printf '{"files":{},"package":"%s"}' "$hash" >"$folder/.cargo-checksum.json"
  mv "$folder" /packages/tree/crates/
  rm -rf /packages/unpacked
done </graphrun/crates
# Debug information takes more room than the work folder of a sandbox has.
cat >/packages/tree/config.toml <<'CONFIG'
[source.crates-io]
replace-with = "locked"
[source.locked]
directory = "/.cargo/crates"
[net]
offline = true
[profile.dev]
debug = false
incremental = false
CONFIG
