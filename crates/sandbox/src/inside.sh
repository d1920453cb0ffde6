# Runs inside the sandbox, under its limits and its filter, as the parent of the program.
# Arguments: the number of the last descriptor below, `mounted` if the host mounts a folder, the number of required programs, their names, the number of declared
# files, their names, the number of declared files in /tmp, their names, then the program with its arguments.
# Descriptors: 0 the word to go, 1 and 2 the output, 3 reports to the host, 4 the files (tar), 5 the list of what is below the
# declared names, and the declared files (tar);
# with a channel also 6 the input of the program, which is its secret if it has one, and 7 its records.
set -eu
umask 077

# Whatever else the host process had open must not reach the program, also where a channel would be.
last=$1
shift
for path in /proc/self/fd/*; do
  fd=${path##*/}
  if ((fd > last)); then exec {fd}>&-; fi
done

# The host mounts the folder below everything else, and answers.
if [[ $1 == mounted ]]; then
  printf 'ready\n' >&3
  read -r word
  [[ $word == mounted ]]
  cd /box
fi
shift

count=$1
required=("${@:2:count}")
shift $((count + 1))
count=$1
names=("${@:2:count}")
shift $((count + 1))
count=$1
temporary=("${@:2:count}")
shift $((count + 1))

tar --extract --file=- --directory=/box --touch --no-same-owner <&4
exec 4<&-
# The host reads this descriptor only until the program may start, so nothing that the program does is taken for it.
require() {
  if ! PATH=$program_path type -P -- "$1" >/dev/null; then
    printf 'missing %s\n' "$1" >&3
    exit 1
  fi
}
# Programs of the Python environment come first for the program, and never for this script.
program_path=$PATH
if [[ -d /env/bin ]]; then program_path=/env/bin:$PATH; fi
for program in "$1" "${required[@]}"; do require "$program"; done
printf unpacked >&3
exec 3>&-

# Without the word the host is gone, or has changed its mind: the files may be cut short and nobody would stop us. The
# word comes after everything before it was read, so what is printed from here on is the program's.
read -r word
[[ $word == go ]]

set +e
exec 8>&2 2>/dev/null # The shell's own "Killed" is not the program's output.
if ((last == 7)); then
  PATH=$program_path "$@" <&6 3>&7 2>&8 5>&- 6>&- 7>&- 8>&-
else
  PATH=$program_path "$@" </dev/null 2>&8 5>&- 8>&-
fi
status=$?

# Daemons end with the program; nothing changes the files while they are brought out.
kill -KILL -1
if ((${#names[@]} + ${#temporary[@]} > 0)); then
  cd /box
  present=()
  for name in "${names[@]}"; do
    if [[ -e $name || -L $name ]]; then present+=("$name"); fi
    # What lies behind a link is not what lay there before.
    while [[ $name == */* ]]; do
      name=${name%/*}
      if [[ -L $name ]]; then printf 'l%s\0' "$name" >&5; fi
    done
  done
  # The list of what is left comes first. The program may have left files without the right to read them, and the packer
  # skips those.
  is_whole=yes
  if ((${#present[@]} > 0)); then
    find "${present[@]}" \( ! -type l \( ! -readable -o -type d ! -executable \) -exec chmod u+rX {} \; , -printf '%y%p\0' \) >&5 || is_whole=no
  fi
  # A program without room may have removed a file that it could not write anew.
  if (($(stat --file-system --format=%a /box) < 16)); then is_whole=no; fi
  printf '\0%s\0' "$is_whole" >&5
  # Each name of a file comes out with its content: of two names for one file, none is lost. No name begins with `-`.
  tar --create --file=- --ignore-failed-read --hard-dereference --directory=/tmp "${temporary[@]}" --directory=/box "${names[@]}" >&5
fi
exit "$status"
