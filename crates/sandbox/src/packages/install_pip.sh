# Installs Python packages into /packages/tree. Arguments: `--require-hashes` or an empty text, then pip with its interpreter.
set -eu
while IFS= read -r -d '' setting; do export "$setting"; done
# The registry can have a name of this machine, and is reached through the proxy, too.
unset NO_PROXY no_proxy
export TMPDIR=/packages/tmp PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
mkdir -p /packages/tmp/wheels /packages/tree
options=(--quiet --only-binary :all: --requirement /graphrun/requirements.txt)
[[ -n $1 ]] && options+=("$1")
shift
if [[ -s /graphrun/requirements.txt ]]; then
  # Exactly the packages of the file; what they need beyond it must be missing in the second step.
  "$@" download "${options[@]}" --no-deps --dest /packages/tmp/wheels
  "$@" install "${options[@]}" --no-index --find-links /packages/tmp/wheels --no-compile --no-warn-script-location --target /packages/tree
fi
# Nothing can write there later. Packages may contain files for other versions of Python, which do not compile.
"$1" -I -m compileall -q -q --invalidation-mode unchecked-hash -s /packages/tree -p /dependencies/python /packages/tree || true
