#!/usr/bin/env bash
# A container engine of the tests' own: private folders and socket, with gVisor, and with a bridge
# that leads to one other host: 203.0.113.1 answers `outside` at port 4715.
#
#   scripts/test-engine.sh start DIR    says the socket's path once it answers
#   scripts/test-engine.sh left DIR     says what is left of containers: themselves, their processes,
#                                       control groups and mounts; fails if there is any
#   scripts/test-engine.sh kill DIR     ends the engine alone: its containers go on; start it again
#   scripts/test-engine.sh stop DIR     ends it with all that it started, and removes DIR
#
# DIR must be short: a socket's path has at most 107 bytes. Needs root.
set -euo pipefail

complain() {
    printf 'test-engine: %s\n' "$1" >&2
    exit 2
}

[[ $# == 2 ]] || complain 'usage: scripts/test-engine.sh start|left|kill|stop DIR'
action=$1
dir=$(realpath -m "$2")
socket=$dir/engine.sock

ask() {
    curl --silent --fail --max-time 10 --unix-socket "$socket" "http://engine$1"
}

# Of its bridge, and of the control group that all its containers are in. A bridge's name has at most
# 15 bytes; it is the same for the same DIR.
name=symbi-$(printf '%s' "$dir" | cksum | cut -d ' ' -f 1 | tail -c 9)

# The other host: a network namespace with a listener, which ends with it.
start_outside() {
    local id tries
    id=$(cat "$dir/outside.pid" 2> /dev/null || true)
    [[ -n $id ]] && kill -0 "$id" 2> /dev/null && return
    cat > "$dir/outside.py" << 'END'
import socket
listener = socket.create_server(("", 4715))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"outside")
    connection.close()
END
    setsid unshare --net python3 "$dir/outside.py" > /dev/null 2>&1 < /dev/null &
    id=$!
    printf '%s\n' "$id" > "$dir/outside.pid"
    for tries in {1..100}; do
        [[ $(readlink "/proc/$id/ns/net") != $(readlink /proc/self/ns/net) ]] && break
        sleep 0.05
    done
    # Addresses of RFC 5737: nobody's.
    ip link add name "${name}o" type veth peer name outside netns "$id"
    ip link set dev "${name}o" master "$name" up
    nsenter --target "$id" --net sh -ec '
        ip link set dev lo up
        ip link set dev outside up
        ip address add 198.51.100.254/24 dev outside
        ip address add 203.0.113.1/32 dev lo'
}

start() {
    mkdir -p -m 0700 "$dir"
    # TEST-NET-2 of RFC 5737: nobody's addresses.
    [[ -e /sys/class/net/$name ]] || ip link add name "$name" type bridge
    ip address replace 198.51.100.1/24 dev "$name"
    ip link set dev "$name" up
    start_outside
    cat > "$dir/daemon.json" << 'END'
{"runtimes": {"runsc": {"path": "/usr/bin/runsc",
  "runtimeArgs": ["--platform=ptrace", "--network=none", "--fsgofer-host-uds"]}}}
END
    setsid dockerd --config-file "$dir/daemon.json" --data-root "$dir/data" \
        --exec-root "$dir/exec" --host "unix://$socket" --pidfile "$dir/pid" \
        --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent="$name" \
        --iptables=false --ip-masq=false --ip-forward=false --bridge="$name" \
        --default-gateway=198.51.100.254 \
        > "$dir/log" 2>&1 < /dev/null &
    local tries
    for tries in {1..300}; do
        if ask /_ping > /dev/null 2>&1; then
            # Whoever asked for it may use it.
            chown "${SUDO_UID:-0}" "$dir" "$socket"
            printf '%s\n' "$socket"
            return
        fi
        kill -0 $! 2> /dev/null || break
        sleep 0.1
    done
    tail -n 5 "$dir/log" >&2
    stop
    complain 'the engine does not answer'
}

# The ids of processes whose command line names the folder: the engine, its helper, its shims.
processes() {
    local file
    for file in /proc/[0-9]*/cmdline; do
        [[ ${file//[!0-9]/} == "$$" ]] && continue
        if tr '\0' ' ' 2> /dev/null < "$file" | grep -qF -- "$dir/"; then
            printf '%s\n' "${file//[!0-9]/}"
        fi
    done
}

# The folders of control groups below the engine's own, the deepest first.
control_groups() {
    find /sys/fs/cgroup -depth -type d -path "*/$name/*" 2> /dev/null || true
}

# Each thing that is left of a container, on a line of its own.
leftovers() {
    local id
    ask '/containers/json?all=true' |
        python3 -c 'import json, sys
for it in json.load(sys.stdin): print("container", it["Id"][:12], it["Names"], it["State"])'
    for id in $(processes); do
        [[ $id == "$(cat "$dir/outside.pid")" ]] && continue
        case $(readlink "/proc/$id/exe") in
            */dockerd | */containerd | '') ;;
            *) printf 'process %s: %s\n' "$id" "$(tr '\0' ' ' 2> /dev/null < "/proc/$id/cmdline")" ;;
        esac
    done
    control_groups | sed 's/^/control group /'
    awk -v data="$dir/data/" 'index($5, data) == 1 { print "mount", $5 }' /proc/self/mountinfo
}

left() {
    local found
    found=$(leftovers)
    [[ -z $found ]] && return
    sed 's/^/left behind: /' <<< "$found"
    return 1
}

# signal NAME: sends it to the engine, and waits until that has ended.
signal() {
    local id tries
    id=$(cat "$dir/pid" 2> /dev/null || true)
    [[ -n $id ]] || return 0
    kill -s "$1" "$id" 2> /dev/null || true
    for tries in {1..150}; do
        kill -0 "$id" 2> /dev/null || break
        sleep 0.1
    done
}

kill_alone() {
    signal KILL
    rm -f "$dir/pid" "$socket"
}

stop() {
    local id place
    signal TERM
    for id in $(processes); do
        kill -KILL "$id" 2> /dev/null || true
    done
    [[ ! -e /sys/class/net/$name ]] || ip link delete dev "$name"
    while read -r place; do
        umount --lazy "$place" || true
    done < <(awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
    find /sys/fs/cgroup -depth -type d -path "*/$name*" -exec rmdir {} + 2> /dev/null || true
    rm -rf --one-file-system "$dir"
}

case $action in
    start) start ;;
    left) left ;;
    kill) kill_alone ;;
    stop) stop ;;
    *) complain "unknown action \`$action\`" ;;
esac
