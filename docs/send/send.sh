#!/bin/sh
# Delivers lines of Influx line protocol, as they come on standard input:
#
#   echo "room,floor=2 temperature=21.5" | SPM_URL=http://localhost:8000 SPM_TOKEN=spm_… sh send.sh
#
# In bodies of 5,000 lines, each under an id of its own: what is sent again after a failure is counted once.
# Lines without a time get the server's; give your own in milliseconds if what you send may have to wait.
set -u
: "${SPM_URL:?where the server is}" "${SPM_TOKEN:?a token of your app}"
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
split -l 5000 -a 6 - "$folder/body-"
refused=0
for body in "$folder"/body-*; do
  [ -e "$body" ] || break
  id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  pause=1
  while :; do
    status=$(curl -sS -o "$folder/answer" -w '%{http_code}' --max-time 30 --data-binary "@$body" \
      -H "Authorization: Bearer $SPM_TOKEN" -H "X-Message-Id: $id" "$SPM_URL/write?precision=ms")
    case $status in
      204) break ;;
      000 | 408 | 429 | 5??) # not there or busy: the same again, later
        echo "waiting $pause s: ${status#000}" >&2
        sleep "$pause"
        pause=$((pause < 30 ? pause * 2 : 60)) ;;
      *) # some or all lines are wrong, or the token is: saying it again would not help
        cat "$folder/answer" >&2
        refused=1
        break ;;
    esac
  done
done
exit $refused
