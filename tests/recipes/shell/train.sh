#!/bin/sh
# Halve an error again and again. RATE and DECAY are settings; STATE keeps what a later run goes on from.
set -eu
rate=$1
decay=$2
state=$3

round=0
error=1
[ ! -e "$state" ] || read -r round error < "$state"
while [ "$round" -lt 9 ]; do
    round=$((round + 1))
    error=$(awk "BEGIN { printf \"%.9f\", $error * (1 - $rate * $decay ^ $round) + 0.001 * $rate }")
    echo "$round $error" > "$state.tmp" && mv "$state.tmp" "$state"
    echo "round $round of 9: error is $error"
    sleep 0.3
done
