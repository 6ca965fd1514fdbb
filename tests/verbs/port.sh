#!/bin/busybox sh
# port RAIL END up|down [elsewhere]: a link that goes down loses its route and its neighbours: they are set again.
# Its address is 10.0.RAIL.1 or .2, elsewhere .11 or .12; the other end is known by both of its own. One process does it
# all: to start one takes an emulated processor long.
rail=$1 end=$2 before=
[ $3 = up ] || exec /tools/ip link set $end$rail $3
if [ "$end" = a ]; then other=b own=1 peer=2 table=10$rail; else other=a own=2 peer=1 table=20$rail; fi
now=$own
[ "$4" = elsewhere ] && now=1$own
[ -e /run/at.$end$rail ] && read -r before </run/at.$end$rail
echo $now >/run/at.$end$rail
leave=
[ "${before:-$now}" = $now ] || leave="addr del 10.0.$rail.$before/24 dev $end$rail"
read -r address </sys/class/net/$other$rail/address
/tools/ip -batch - <<END
link set $end$rail up
$leave
addr replace 10.0.$rail.$now/24 dev $end$rail
route replace 10.0.$rail.$peer/32 dev $end$rail table $table
route replace 10.0.$rail.1$peer/32 dev $end$rail table $table
neigh replace 10.0.$rail.$peer lladdr $address nud permanent dev $end$rail
neigh replace 10.0.$rail.1$peer lladdr $address nud permanent dev $end$rail
END
