#!/bin/busybox sh
# port RAIL END up|down: a link that goes down loses its address, its route and its neighbour: they are set again.
rail=$1 end=$2
if [ "$end" = a ]; then other=b own=1 peer=2 table=10$rail; else other=a own=2 peer=1 table=20$rail; fi
/tools/ip link set $end$rail $3
[ $3 = up ] || exit 0
/tools/ip addr replace 10.0.$rail.$own/24 dev $end$rail
/tools/ip route replace 10.0.$rail.$peer/32 dev $end$rail src 10.0.$rail.$own table $table
/tools/ip neigh replace 10.0.$rail.$peer lladdr $(cat /sys/class/net/$other$rail/address) nud permanent dev $end$rail
