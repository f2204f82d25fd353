--[[
  Takes from limits, or only looks: any number of decisions, each over one or more limits, all of them or none.
  KEYS
    [1…]  the control hash of each limit; then for each part of each decision the state of its key
  ARGV
    [1]   how many limits
    [2…]  the definition of each, JSON; then for each part of each decision, with spaces between: 'take' or 'peek' where
          it begins a decision, 'and' where it belongs to the one before; the number of its limit, the cost, the lease
  Returns {now (µs), then for each decision: 0 where it is refused, 1 where it is allowed (+ 2 where keys share a state),
  and for each of its parts: µs until it conforms, units left, µs at which all are there again}.
]]
--- @include "lib/limits"
local now, count = redis_now(), tonumber(ARGV[1])
local limits, told, parts = {}, { now }, {}
local takes

local function decide()
  local wait, flags = 0, 1
  for _, part in ipairs(parts) do
    wait = math.max(wait, limit_wait(part))
    if part.shared then flags = 3 end
  end
  if wait > 0 then flags = flags - 1 end
  told[#told + 1] = flags
  for _, part in ipairs(parts) do
    if takes then limit_note_take(part.l, now) end
    if takes and wait == 0 then limit_charge(part, 0, part.lease) end
    limit_tell(part, told)
    if takes and wait == 0 and not part.shared then limit_keep_place(part.l, part.key, told[#told]) end
  end
end

for i = count + 1, #KEYS do
  local verb, number, cost, lease = string.match(ARGV[i + 1], '^(%l+) (%d+) (%S+) ?(.*)$')
  if verb ~= 'and' then
    if #parts > 0 then decide() end
    parts, takes = {}, verb == 'take'
  end
  number = tonumber(number)
  local l = limits[number] or limit_read(KEYS[number], ARGV[number + 1], now)
  limits[number] = l
  local part = limit_ask(l, KEYS[i], tonumber(cost), now)
  part.lease = lease
  parts[#parts + 1] = part
end
decide()
return told
