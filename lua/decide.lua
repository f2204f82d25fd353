--[[
  Takes from limits, or only looks: any number of decisions, each over one or more limits, all of them or none.
  KEYS
    [1…]  the switch of each limit; then for each part of each decision the state of its key
  ARGV
    [1]   how many limits
    [2]   when it is too late (µs): then nothing is decided; '' for never
    [3…]  the definition of each, JSON; then for each part of each decision, with spaces between: 'take' or 'peek' where
          it begins a decision, 'and' where it belongs to the one before; the number of its limit, the cost, the lease
  Returns {now (µs), then for each decision: 0 where it is refused, 1 where it is allowed, + 2 where keys share a state, + 4
  where a limit has a newer definition (then nothing is charged); and for each of its parts what lib/limits tells of it}; {now} where it was too late.
]]
--- @include "lib/limits"
local now, count = redis_now(), tonumber(ARGV[1])
if ARGV[2] ~= '' and now > tonumber(ARGV[2]) then return { now } end
local fetched = redis.call('MGET', unpack(KEYS))
local limits, told, parts, states, charged = {}, { now }, {}, {}, {}
local takes

-- What is charged is stored once, at the end.
local function charge(part)
  local s, l = part.s, part.l
  s.lease = part.lease
  l.verbs.charge(s, l, part.cost, 0)
  charged[part.key] = part
end

local function decide()
  local wait, flags, at = 0, 0, #told + 1
  told[at] = 0
  local outdated = false
  for _, part in ipairs(parts) do
    wait, outdated = math.max(wait, limit_wait(part)), outdated or part.l.outdated
    if part.shared then flags = 2 end
  end
  -- Whoever asks by an older definition is told, and asks again.
  if outdated then takes, flags = false, flags + 4 end
  for _, part in ipairs(parts) do
    if takes then limit_note_take(part.l, now) end
    if takes and wait == 0 and limit_charges(part, 0) then charge(part) end
    limit_tell(part, told)
    if takes and wait == 0 and not part.shared then limit_keep_place(part.l, part.key, now + told[#told]) end
  end
  told[at] = wait == 0 and flags + 1 or flags
end

for i = count + 1, #KEYS do
  local verb, number, cost, lease = string.match(ARGV[i + 2], '^(%l+) (%d+) (%S+) ?(.*)$')
  if verb ~= 'and' then
    if #parts > 0 then decide() end
    parts, takes = {}, verb == 'take'
  end
  number = tonumber(number)
  local key, l = KEYS[i], limits[number]
  if not l then
    l = limit_read(string.sub(KEYS[number], 1, -8), ARGV[number + 2], now, false, fetched[number])
    limits[number] = l
  end
  local place, shared = limit_place(l, key, now)
  if not states[place] then
    local packed
    if not shared then packed = fetched[i] end
    states[place] = l.verbs.open(place, l, now, packed)
  end
  local part = limit_part(l, states[place], key, tonumber(cost), now)
  part.key, part.shared, part.lease = place, shared, lease
  parts[#parts + 1] = part
end
decide()
for _, part in pairs(charged) do part.l.verbs.save(part.s, part.l) end
return told
