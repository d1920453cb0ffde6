# Downloads modules of Go into /packages/tree. No code of a module runs.
set -eu
while IFS= read -r -d '' setting; do export "$setting"; done
# The proxy of modules can have a name of this machine, and is reached through the proxy of the sandbox, too.
unset NO_PROXY no_proxy
export GOMODCACHE=/packages/tree GOPATH=/packages/path GOCACHE=/packages/cache GOENV=off GOTOOLCHAIN=local GOSUMDB=off GOVCS='*:off' GO111MODULE=on GOWORK=off
mkdir -p /packages/tree/cache/download /packages/work
cd /packages/work
cp /graphrun/go.mod /graphrun/go.sum .
chmod u+w go.mod go.sum
# Each of these modules has a hash in `go.sum`, which go compares.
if [[ -s /graphrun/modules ]]; then
  xargs -n 100 go mod download -modcacherw </graphrun/modules >&2
fi
# The requirements of modules that give no package, without their files.
GOFLAGS='-mod=mod -modcacherw' go list -m all >/dev/null
rm -rf /packages/tree/cache/vcs /packages/tree/cache/lock
