#!/usr/bin/env bash
# Run the recipes for many machines of docs/scripting.md, as they stand there: with GNU
# parallel, whose ssh is a stand-in, and with Slurm, whose two nodes are this machine.
# Processes are killed, preempted and requeued; the merged answers must be those of one
# run. All files, keys and sockets are in a temporary folder, and every daemon ends with
# this script. Prints SKIP without the packages (scripts/install-deps.sh cluster) or root.
#   QWICK  the binary (default ./qwick)
set -eu
cd "$(dirname "$0")/.."
QWICK=$(realpath "${QWICK:-./qwick}")
document=$PWD/docs/scripting.md

skip()
{
    echo "SKIP check-cluster: $*"
    exit 0
}

fail()
{
    echo "check-cluster: $*" >&2
    [ ! -s "$work/log/slurmctld" ] || tail -n 20 "$work/log/slurmctld" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || skip "the daemons of Slurm need root"
for program in parallel munged slurmctld slurmd sbatch python3; do
    command -v $program >/dev/null ||
        skip "no $program; scripts/install-deps.sh cluster installs it"
done

work=$(mktemp -d)
chmod 755 "$work"
# Jobs of Slurm first: slurmd leaves them running.
# shellcheck disable=SC2317 # called by the trap
finish()
{
    local pid
    if [ -e "$work/slurm.conf" ]; then
        scancel --user=root >/dev/null 2>&1 || :
        for _ in $(seq 50); do
            [ -n "$(squeue -h 2>/dev/null)" ] || break
            sleep 0.2
        done
    fi
    for pid in $(jobs -p); do
        kill "$pid" 2>/dev/null || :
    done
    wait
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

# recipe PATTERN: print the block of the section that has a line with the pattern.
recipe()
{
    awk -v pattern="$1" '
        /^## / { inside = $0 == "## Many machines" }
        !inside { next }
        /^```/ { if (block && found) exit; block = !block; text = ""; next }
        block { text = text $0 "\n"; if (index($0, pattern)) found = 1 }
        END { if (!found) exit 1; printf "%s", text }' "$document" ||
        fail "$document has no recipe with: $1"
}

# eventually SECONDS COMMAND...: wait until the command succeeds.
eventually()
{
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "waited too long for: $*"
        sleep 0.1
    done
}

# same WHAT FILE: the answers are those of one run, in its order, without what says how
# long they took and what they shared.
same()
{
    python3 - "$work/one.jsonl" "$2" <<'PY' || fail "$1: $2 differs from one run"
import json, sys

def answers(path):
    for line in open(path, encoding="utf-8"):
        o = json.loads(line)
        o.pop("timing"), o["usage"].pop("cached_tokens")
        yield json.dumps(o)

one, other = (list(answers(p)) for p in sys.argv[1:])
sys.exit(one != other)
PY
    echo "ok $1"
}

# merge WHAT: run the recipe that merges; its check has nothing left to answer.
merge()
{
    local merge
    merge=$(recipe 'sort -s')
    sh -c "${merge/qwick batch/qwick batch -v}" 2>merge.err || fail "$1: merge: $(<merge.err)"
    grep -q "qwick: 0 records, $n answered before, 0 answers are errors" merge.err ||
        fail "$1: merge: $(<merge.err)"
    same "$1" answers.jsonl
}

# lines N FILE: the file has at least N lines.
lines()
{
    [ "$(wc -l <"$2" 2>/dev/null || echo 0)" -ge "$1" ]
}

# idle: no qwick runs in this directory.
idle()
{
    local process
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/exe")" != "$QWICK" ] ||
            [ "$(readlink "$process/cwd")" != "$PWD" ] || return 1
    done
}

mkdir "$work/bin" "$work/ssh" "$work/log"
ln -s "$QWICK" "$work/bin/qwick"
export PATH="$work/bin:$PATH"
# Answers of a fixed length, one after the other, so that a kill comes in the middle.
unset QWICK_MODEL
export QWICK_NO_CONFIG=on QWICK_EXACT=on QWICK_IGNORE_EOS=on QWICK_TEMP=1 \
    QWICK_MAX_BATCH=1 QWICK_MAX_TOKENS=100
n=40
for i in $(seq $n); do
    printf '{"id":"r%d","prompt":"list %d files"}\n' "$i" "$i"
done >"$work/prompts.jsonl"
qwick batch --seed 1 -i "$work/prompts.jsonl" -o "$work/one.jsonl"

# ---- GNU parallel ----

# The hosts of the recipe are this machine.
cat >"$work/ssh/ssh" <<'SH'
#!/bin/sh
while [ "$1" != host1 ] && [ "$1" != host2 ]; do
    shift
done
echo "$1" >>"$HOSTS"
shift
[ "$1" != -- ] || shift
exec sh -c "$*"
SH
chmod 755 "$work/ssh/ssh"
# GNU parallel runs jobs with $SHELL, which may be unset.
export SHELL=/bin/sh
export HOSTS="$work/hosts" PARALLEL_SSH="$work/ssh/ssh" PARALLEL_HOME="$work/parallel"
mkdir "$work/parallel"
: >"$work/parallel/will-cite"

# directory NAME: begin a directory with the prompts.
directory()
{
    mkdir "$work/$1"
    cd "$work/$1"
    cp ../prompts.jsonl .
}

directory shards
recipe 'seq 8' >run.sh
setsid sh run.sh 2>killed.err &
eventually 60 lines 2 answers.3-of-8.jsonl
# The first signal lets jobs end, the second one ends them.
kill -- -$!
sleep 0.5
kill -- -$! 2>/dev/null || :
wait $! 2>/dev/null && fail "parallel: was not killed"
eventually 60 idle
before=$(cat answers.*-of-8.jsonl | wc -l)
[ "$before" -lt $n ] || fail "parallel: nothing was left to do"
sort answers.*-of-8.jsonl >before.jsonl
sh run.sh || fail "parallel: the second run"
sort answers.*-of-8.jsonl | comm -23 before.jsonl - >lost
[ ! -s lost ] || fail "parallel: answers of the first run were lost"
sort -u "$HOSTS" | tr '\n' ' ' | grep -q '^host1 host2 $' || fail "parallel: hosts"
merge "parallel: shards, killed after $before of $n answers, continued and merged"
rm answers.4-of-8.jsonl
sh -c "$(recipe 'sort -s')" || fail "merge with a lost shard"
sort -s -n -t : -k 2 -o answers.jsonl answers.jsonl
same "merge: a lost shard is answered" answers.jsonl
# shellcheck disable=SC2016 # expanded by the shell below
sh -c "$(recipe 'sort -s' | sed 's/--seed 1/--seed 2/')" 2>/dev/null && rc=0 || rc=$?
[ "$rc" -eq 2 ] || fail "merge: answers of another seed: exit status $rc"
echo "ok merge: answers of other options are refused"

directory pipe
sh -c "$(recipe '--pipe' | sed 's/-N50/-N7/; s/50 \*/7 */')"
same "parallel: --pipe" answers.jsonl

# ---- Slurm ----

# Two nodes with 8 CPUs each, whatever the machine has.
free_ports()
{
    python3 -c 'import socket
s = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(x.getsockname()[1] for x in s))'
}

# daemon NAME COMMAND...: start a daemon that stays in the foreground.
daemon()
{
    local name=$1
    shift
    "$@" >"$work/log/$name.out" 2>&1 </dev/null &
}

start_slurm()
{
    local host node ports
    host=$(hostname -s)
    read -r -a ports < <(free_ports)
    mkdir -m 700 "$work/state" "$work/munge"
    mkdir -m 755 "$work/socket" "$work/n1" "$work/n2"
    head -c 128 /dev/urandom >"$work/munge/key"
    chmod 400 "$work/munge/key"
    daemon munged munged --foreground --key-file="$work/munge/key" \
        --socket="$work/socket/munge" --pid-file="$work/munge/pid" \
        --log-file="$work/munge/log" --seed-file="$work/munge/seed"
    eventually 20 test -S "$work/socket/munge"
    export SLURM_CONF="$work/slurm.conf"
    cat >"$SLURM_CONF" <<CONF
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/socket/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/%n.pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdLogFile=$work/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=10
JobFileAppend=1
ReturnToService=2
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=8
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=8
PartitionName=low Nodes=n1,n2 Default=YES PriorityTier=1
PartitionName=high Nodes=n1,n2 PriorityTier=2 PreemptMode=OFF
CONF
    daemon slurmctld slurmctld -D
    for node in n1 n2; do
        daemon $node slurmd -D -N $node
    done
    # shellcheck disable=SC2016 # expanded by that shell
    eventually 60 sh -c '[ "$(sinfo -h -p low -t idle -o %D)" = 2 ]'
    sinfo
}

# in_state STATE TASK...: each task of the array has this state.
in_state()
{
    local state=$1 task
    shift
    for task in "$@"; do
        scontrol -o show job "${job}_$task" | grep -q " JobState=$state " || return 1
    done
}

# Slurm lets a requeued task wait for two minutes; not here.
# shellcheck disable=SC2317 # called in the background
start_again()
{
    while sleep 0.5; do
        squeue -h -r -t PD -o '%i %r' | while read -r task why; do
            [ "$why" != BeginTime ] || scontrol update job="$task" StartTime=now || :
        done
    done
}

# submit [ARGS...]: submit the recipe's script with its command, in the background.
submit()
{
    local command
    command=$(recipe 'sbatch --wait job.sh')
    rm -f job.id
    sh -c "exec ${command/--wait/--wait --parsable $*}" >job.id 2>sbatch.err &
    waiting=$!
    eventually 30 test -s job.id
    job=$(<job.id)
}

# submitted: wait until sbatch returns. Returns its status.
submitted()
{
    wait "$waiting"
}

start_slurm
start_again >/dev/null 2>&1 &
directory slurm
recipe '#SBATCH' >job.sh

# Where Slurm does not bind tasks, qwick counts the CPUs of the task.
sbatch --wait --cpus-per-task=1 -o plan.json \
    --wrap 'exec qwick plan --no-speed --json' >/dev/null
grep -q '"threads":1,.*"slurm_cpus":1,' plan.json || fail "cpus: $(<plan.json)"
echo "ok slurm: a task with one CPU has one thread"

# A job of a higher partition takes both nodes.
submit
eventually 60 lines 1 answers.1-of-8.jsonl
eventually 60 lines 1 answers.2-of-8.jsonl
squeue
sbatch -p high -N 2 --ntasks-per-node=1 --cpus-per-task=8 -o high.out --wrap 'sleep 1' >/dev/null
eventually 60 in_state PENDING 1 2
cat answers.[12]-of-8.jsonl >before.jsonl
squeue
# An administrator requeues another task.
eventually 60 lines 1 answers.5-of-8.jsonl
scontrol requeue "${job}_5"
submitted || fail "slurm: sbatch --wait: $(<sbatch.err)"
in_state COMPLETED 1 2 3 4 5 6 7 8 || fail "slurm: not all tasks are complete"
for task in 1 2 5; do
    scontrol -o show job "${job}_$task" | grep -q ' Restarts=1 ' ||
        fail "slurm: task $task was not restarted"
done
grep -h -o 'DUE TO [A-Z ]*' "slurm-${job}"_[125].out | sort | uniq -c
sort before.jsonl | comm -23 - <(sort answers.[12]-of-8.jsonl) >lost
[ ! -s lost ] || fail "slurm: answers before the preemption were lost"
merge "slurm: array job, preempted, requeued and merged"

# A part of the array again.
rm answers.[37]-of-8.jsonl
submit --array=3,7
submitted || fail "slurm: a part of the array: $(<sbatch.err)"
merge "slurm: a part of the array again"

# A signal to the script reaches qwick, which stops at once and keeps its answers.
rm answers.*-of-8.jsonl
submit --array=1
eventually 60 lines 1 answers.1-of-8.jsonl
scancel --signal=INT --full "${job}_1"
submitted && fail "slurm: a task that a signal ended succeeded"
eventually 60 in_state FAILED 1
idle || fail "slurm: qwick went on after the signal"
submit
submitted || fail "slurm: after a signal: $(<sbatch.err)"
merge "slurm: after scancel --signal=INT --full"
