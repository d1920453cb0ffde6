# Installs JavaScript packages into /packages/tree/node_modules.
set -eu
while IFS= read -r -d '' setting; do export "$setting"; done
# The registry can have a name of this machine, and is reached through the proxy, too.
unset NO_PROXY no_proxy
# The keys of registries stay in memory, and are on no command line.
printf '%s' "$NPM_USER_CONFIG" >/tmp/npmrc
unset NPM_USER_CONFIG
export TMPDIR=/packages/tmp npm_config_userconfig=/tmp/npmrc npm_config_globalconfig=/packages/tmp/global
mkdir -p /packages/tmp /packages/tree/node_modules
cd /packages/tree
cp /graphrun/package.json /graphrun/package-lock.json .
npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error --logs-max=0 --cache=/packages/tmp/cache
mkdir -p node_modules
