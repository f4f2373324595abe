{
# The reads that the resources of site.yaml come down to, as a person would write them into one script.
PATH=/usr/sbin:/sbin:/usr/bin:/bin; LC_ALL=C; export PATH LC_ALL
cd /proc/sys/net
grep -asH '' core/rmem_max core/wmem_max core/rmem_default core/wmem_default core/netdev_max_backlog core/somaxconn \
    ipv4/tcp_rmem ipv4/tcp_wmem ipv4/tcp_mtu_probing ipv4/tcp_timestamps ipv4/tcp_sack ipv4/tcp_fin_timeout \
    ipv4/tcp_keepalive_time ipv4/tcp_keepalive_intvl ipv4/tcp_keepalive_probes ipv4/tcp_slow_start_after_idle \
    ipv4/tcp_syn_retries ipv4/tcp_retries2 ipv4/tcp_max_syn_backlog ipv4/ip_local_port_range ipv4/conf/all/arp_ignore \
    ipv4/conf/all/arp_announce ipv4/conf/all/rp_filter ipv4/conf/all/log_martians
grep -asHn '' /etc/sysctl.d/*.conf /run/sysctl.d/*.conf /usr/local/lib/sysctl.d/*.conf /usr/lib/sysctl.d/*.conf
ip -d -j link
ip -j addr
set -- /etc/ifcfg-eth1 /etc/netplay-bench.conf /etc/motd /etc/netplay-bench.d /etc/netplay-bench.d/a.conf
stat -c '%n %f %u %g %U %G %s' -- "$@"
sha256sum -- /etc/ifcfg-eth1 /etc/netplay-bench.conf /etc/motd /etc/netplay-bench.d/a.conf
cat /etc/ifcfg-eth1
exit 0
}
