# Shell functions about NVIDIA's cards, for probes and steps.

NL='
'
# Tells the network functions of NVIDIA's cards, virtual ones apart: `card ADDRESS CLASS INTERFACES RDMA-DEVICES`, lists with
# commas. A port's kind is in the class: 0x0200 Ethernet, 0x0207 InfiniBand. $cards keeps the addresses, $rdma `NAME=ADDRESS`.
cards() {
  cards= rdma=
  for v in $(grep -ls '^0x15b3' /sys/bus/pci/devices/*/vendor); do
    d=${v%/vendor}; a=${d##*/} c= n= r=
    read -r c <"$d/class" || continue
    case $c in 0x02*) ;; *) continue ;; esac
    [ ! -e "$d/physfn" ] || continue
    for i in "$d/net/"*; do [ ! -e "$i" ] || n=$n,${i##*/}; done
    for i in "$d/infiniband/"*; do [ ! -e "$i" ] || { r=$r,${i##*/}; rdma="$rdma ${i##*/}=$a"; }; done
    cards="$cards $a"
    n=${n#,} r=${r#,}
    echo "card $a $c ${n:--} ${r:--}"
  done
}

# Tells which cards are meant by a word, `is WORD ADDRESS...`, and adds them to $targets. All functions of a card are one
# device, whichever was named; one that sysfs doesn't have is left to the tools.
#   resolve WORD
resolve() {
  a= at=
  case $1 in
    all) a=$cards ;;
    /*) [ ! -e "$1" ] || a=$1 ;;
    *:*.*) a=$1 ;;
    *) for i in $rdma; do case $i in "$1="*) a=${i#*=} ;; esac; done ;;
  esac
  for i in $a; do
    s=${i%.?} t=
    for k in $targets; do [ "${k%.?}" != "$s" ] || t=$k; done
    [ -n "$t" ] || { t=$i; targets="$targets $i"; }
    case "$at " in *" $t "*) ;; *) at="$at $t" ;; esac
  done
  echo "is $1$at"
}

# Runs a function for each of the arguments, all at once, and prints what they give one after another. Each waits for its
# turn in a pipe, so that nothing is mixed and no file is needed.
#   each FUNCTION ARGUMENT...
each() {
  f=$1 a=$2
  shift 2
  # In a shell of its own, as the others are: a function's variables are none of who calls it.
  if [ $# -eq 0 ]; then ( "$f" "$a" ); else "$f" "$a" | { each "$f" "$@" </dev/null; cat; }; fi
}

# The same for addresses of cards. What is named by a path may be a card that is named by its address too: it is asked
# after that, as no card is asked twice at once.
#   each_card FUNCTION ADDRESS...
each_card() {
  g=$1 p= q=
  shift
  for i; do case $i in /*) q="$q $i" ;; *) p="$p $i" ;; esac; done
  [ -z "$p" ] || each "$g" $p
  [ -z "$q" ] || each "$g" $q
}

# The first of these tools that the host has, as $tool.
tool() { tool=; for i; do if command -v "$i" >/dev/null; then tool=$i; break; fi; done; }
