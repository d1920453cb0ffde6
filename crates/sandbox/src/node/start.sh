# Starts node with its permission model, which keeps the inspector, addons and internal bindings from the project, and with a
# library that closes its memory.
# This node reads the secret of the records, so it is that of the system and not that of an environment.
PATH=${PATH#/env/bin:}
version=$(node --version)
case $version in
  v2[0-2].*) permission=(--experimental-permission) ;;
  v2[34].*) permission=(--permission) ;;
  v2[5-9].* | v[3-9]?.*) permission=(--permission --allow-net) ;;
  *)
    echo "the runner of tests needs node 20 or later, and the sandbox has $version"
    exit 125
    ;;
esac
LD_PRELOAD=/graphrun/boot/private.so exec node "${permission[@]}" '--allow-fs-read=*' '--allow-fs-write=*' --allow-child-process --allow-worker \
  --disable-warning=ExperimentalWarning --disable-warning=SecurityWarning \
  --test-reporter=spec --test-reporter-destination=stdout /graphrun/boot/boot.cjs "$@"
