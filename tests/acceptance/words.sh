# The words of the acceptance scripts: each script is typed in an empty home by test_acceptance.py.
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT

# expect CODE COMMAND…: the command ends with this exit code.
expect() {
  local code=$1 got=0
  shift
  "$@" || got=$?
  [ "$got" = "$code" ] || { echo "exit code $got, not $code: $*"; exit 1; }
}

# is EXPRESSION COMMAND…: the expression is true of the JSON, d, that the command prints.
is() {
  local expression=$1 text
  shift
  text=$("$@") || true
  python -c "import json, sys; d = json.load(sys.stdin); sys.exit(not ($expression))" <<<"$text" ||
    { echo "not so of $*: $expression"; head -c 3000 <<<"$text"; exit 1; }
}

# prints TEXT COMMAND…: the command succeeds, and what it prints contains the text.
prints() {
  local part=$1 text
  shift
  text=$("$@")
  grep -qF -- "$part" <<<"$text" || { echo "no $part: $*"; head -c 3000 <<<"$text"; exit 1; }
}

# soon EXPRESSION COMMAND…: the same, within three minutes.
soon() {
  local end=$((SECONDS + 180))
  until (is "$@") >soon.log 2>&1; do
    [ $SECONDS -lt $end ] || { cat soon.log; exit 1; }
    sleep 0.5
  done
}
