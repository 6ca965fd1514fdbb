#!/bin/busybox sh
# port RAIL END up|down [elsewhere]: a link that goes down loses its route and its neighbours: they are set again.
# Its address is 10.0.RAIL.1 or .2, elsewhere .11 or .12; the other end is known by both of its own.
rail=$1 end=$2
if [ "$end" = a ]; then other=b own=1 peer=2 table=10$rail; else other=a own=2 peer=1 table=20$rail; fi
/tools/ip link set $end$rail $3
[ $3 = up ] || exit 0
if [ "$4" = elsewhere ]; then now=1$own before=$own; else now=$own before=1$own; fi
/tools/ip addr del 10.0.$rail.$before/24 dev $end$rail 2>/dev/null
/tools/ip addr replace 10.0.$rail.$now/24 dev $end$rail
for number in $peer 1$peer; do
  /tools/ip route replace 10.0.$rail.$number/32 dev $end$rail table $table
  /tools/ip neigh replace 10.0.$rail.$number lladdr $(cat /sys/class/net/$other$rail/address) nud permanent dev $end$rail
done
