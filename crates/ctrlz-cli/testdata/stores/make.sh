#!/usr/bin/env bash
# Makes the archive of a project and its stores with a given release of ctrlz.
#
#   make.sh PROGRAM VERSION      writes VERSION.tar.gz beside this script
#
# Archives of released versions are never made again: `compatibility.rs` proves that every later
# version opens, lists, undoes and restores them.
set -euo pipefail
program=$(realpath "$1")
out=$(realpath "$(dirname "$0")")/$2.tar.gz
top=/tmp/ctrlz-$2
mkdir "$top"
trap 'rm -rf "$top"' EXIT
export HOME=$top/home GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=T GIT_AUTHOR_EMAIL=t@example.com GIT_COMMITTER_NAME=T GIT_COMMITTER_EMAIL=t@example.com
mkdir -p "$top/home" "$top/project/src" "$top/project/empty"
cd "$top/project"
ctrlz() { "$program" --data-dir "$top/data" "$@"; }

git init -q -b main
printf '.env\n*.log\n.agent/\n' > .gitignore
printf 'def price(net):\n    vat = 0.19\n    return net * (1 + vat)\nprint(price(1))\n' > src/app.py
printf 'buy milk\n' > notes.txt
printf 'TOKEN=before\n' > .env
printf 'run me\n' > tool.sh && chmod 750 tool.sh
ln -s src/app.py link
git add . && git commit -q -m start

ctrlz checkpoint -m release --pin
ctrlz run --session main --message 1 --who agent --label 'rename price' -- sed -i s/price/gross/ src/app.py
sed -i s/0.19/0.21/ src/app.py
ctrlz run --session main --message 2 --who agent --label 'drop notes' -- sh -c 'rm notes.txt; rm .env; echo "# agent" >> src/app.py'
ctrlz run --session sub --parent main --message s1 --label 'helper' -- sh -c 'mkdir lib; echo helper > lib/helper.py'
ctrlz checkpoint -m before-undo
ctrlz undo --message s1
ctrlz fork main --at 2 --id forked
ctrlz run --session forked --message f1 --label 'fork work' -- sh -c 'echo fork > fork.txt'
ctrlz run --session tail --message t1 --label 'big change' -- sh -c 'seq 1 2000 > numbers.txt; chmod 600 tool.sh'
ctrlz track > "$top/hash"
# A second store, inside the project.
ctrlz --store .agent/snapshots track > "$top/inside-hash"
echo later > later.txt
ctrlz --store .agent/snapshots run --session inside --message i1 -- sh -c 'echo inside >> later.txt'
ctrlz track > "$top/hash"
pwd > "$top/path"
tar -C "$top" -czf "$out" --owner=0 --group=0 --sort=name project data hash inside-hash path
