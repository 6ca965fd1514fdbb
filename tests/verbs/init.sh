#!/bin/busybox sh
# The guest's first process: two rails of Soft-RoCE between two ends of one system, then the program.
#
#   a0 ── ma0 ═ br0 ═ mb0 ── b0     rail 0: end a is 10.0.0.1, end b is 10.0.0.2
#   a1 ── ma1 ═ br1 ═ mb1 ── b1     rail 1: 10.0.1.1, 10.0.1.2
#
# Each rail has a switch (a bridge) in the middle: a port that goes down leaves the other end's up, and what
# netem drops at mb0 is what a sent, at ma0 what b sent.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
ulimit -l unlimited
for module in crc32_generic udp_tunnel ip6_udp_tunnel ib_core ib_uverbs rdma_rxe veth llc stp bridge sch_netem; do
  insmod /modules/$module.ko || echo "GUEST no module $module"
done

/tools/ip link set lo up
for rail in 0 1; do
  /tools/ip link add br$rail type bridge
  /tools/ip link set br$rail up
  for end in a b; do
    /tools/ip link add $end$rail type veth peer name m$end$rail
    /tools/ip link set m$end$rail master br$rail
    /tools/ip link set m$end$rail up
    echo 1 >/proc/sys/net/ipv4/conf/$end$rail/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$end$rail/rp_filter
  done
done
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
# What an end sends to the other has to go by the wire, though both are addresses of this system: what comes in
# by a port is looked up as local, what goes out between the two is not.
for rail in 0 1; do
  /tools/ip rule add pref 10 iif a$rail lookup local
  /tools/ip rule add pref 10 iif b$rail lookup local
  for a in 1 11; do
    for b in 2 12; do
      /tools/ip rule add pref 20 from 10.0.$rail.$a to 10.0.$rail.$b lookup 10$rail
      /tools/ip rule add pref 20 from 10.0.$rail.$b to 10.0.$rail.$a lookup 20$rail
    done
  done
done
/tools/ip rule add pref 1000 lookup local
/tools/ip rule del pref 0
/bin/port 0 a up
/bin/port 0 b up
/bin/port 1 a up
/bin/port 1 b up
for rail in 0 1; do
  for end in a b; do /tools/rdma link add rxe_$end$rail type rxe netdev $end$rail; done
done
cut -d' ' -f1 /proc/uptime >/run/ready
echo "GUEST ready after $(cat /run/ready) s"
