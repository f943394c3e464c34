# A Ruby process in a known state: other.rb STATE.
case ARGV[0]
when "strings" then $kept = Array.new(40_000) { |i| "x" * (1500 + i % 1000) }
when "strings_freed"
  $kept = Array.new(60_000) { |i| "x" * (1500 + i % 1000) }
  $kept.each_index { |i| $kept[i] = nil if i % 50 != 0 }
  3.times { GC.start }
when "large" then $kept = Array.new(40) { "x" * 2_000_000 }
when "hashes" then $kept = Array.new(60_000) { |i| { id: i, a: i, b: i, c: i, d: i, e: i, f: i, g: i, h: i, j: i } }
end
require "objspace"
puts %({"live": null, "held": null, "other": 0, "strings": #{ObjectSpace.memsize_of_all(String)}})
$stdout.flush
$stdin.read
