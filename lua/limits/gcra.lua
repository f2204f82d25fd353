local limit_state = use 'limits/state'
local bucket = use 'meter/bucket'

-- GCRA, the generic cell rate algorithm (ITU-T I.371): a single time, at which the bucket will be empty. Times are kept
-- on the grid of meter/bucket and relative to the last change, so that no sum exceeds the rate.
--   l.interval  µs per unit of cost, on the grid
--   l.burst     units
local function open(key, l, now, packed)
  local tat, elapsed, ahead = limit_state.load_bucket(key, l, now, packed)
  return { key = key, now = now, tat = tat and tat > elapsed and tat - elapsed or 0, ahead = ahead or -math.huge }
end

-- A cost above the burst (which was lowered since) conforms when the bucket is empty.
local function earliest(s, l, cost)
  if s.tat == 0 then return 0 end
  return math.max(0, s.tat + bucket.ceil((math.min(cost, l.burst) - l.burst) * l.interval))
end

local function charge(s, l, cost, offset)
  local from = offset > 0 and math.max(s.tat, bucket.ceil(offset)) or s.tat
  s.tat = from + bucket.ceil(cost * l.interval)
  if offset > s.ahead then s.ahead = offset end
end

local function adjust(s, l, cost)
  s.tat = math.max(0, s.tat + bucket.ceil(cost * l.interval))
end

local function save(s, l)
  limit_state.keep(s, l, s.tat, s.tat)
end

local function view(s, l)
  return l.burst - s.tat / l.interval, s.now + math.ceil(s.tat)
end

return {
  open = open, earliest = earliest, charge = charge, adjust = adjust, take_back = limit_state.take_back, save = save,
  view = view,
}
