-- Fences: numbers that only grow, per namespace, for runs and leases alike.
-- Each is greater than the last one given out and not smaller than the server's clock in microseconds: a server that
-- lost its tail, or everything, begins above whatever it gave out before, since it cannot be back within the
-- microseconds by which a batch runs ahead of the clock. The caller's own "now" has no say here.

-- A whole number as text: tostring() would round it.
local function digits(number)
  return string.format("%.0f", number)
end

-- Takes `count` fences and returns the first; the others follow it without gaps.
local function take_fences(prefix, count)
  local time = redis.call("TIME")
  local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local first = math.max(tonumber(redis.call("GET", prefix .. "fence") or 0) + 1, clock)
  redis.call("SET", prefix .. "fence", digits(first + count - 1))
  return first
end
