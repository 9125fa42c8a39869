-- The server's clock, in microseconds. `given` is a caller's own "now" (tests and simulation), "" for none.
local function now_of(given)
  if given ~= "" then
    return tonumber(given)
  end
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
