local fixed_window = use 'limits/fixed-window'
local limit_state = use 'limits/state'
local bucket = use 'meter/bucket'
local service = use 'meter/service'

-- A fixed window of the calendar whose remaining units are spread evenly over its remaining open time, again after each
-- change. Nothing of it is left for the next window.
--   l.limit, l.window, l.align, l.zone   as in limits/fixed-window
--   l.service   the open time (limits/state), µs; nothing departs while it stands still
--   l.even      units that may depart back to back
--   l.slowest   µs of open time per unit at most, nil without such a bound
-- s.used: charged in the window from s.start to s.finish; s.last: the last slot, µs; s.debt: units after that slot that
-- departed before their even turn.
local function open(key, l, now, packed)
  if packed == nil then packed = redis.call('GET', key) end
  local s = fixed_window.open(key, l, now, packed)
  local seen, _, _, last, debt = limit_state.load(key, packed)
  s.last, s.debt = s.start, 0
  -- Before its limit was spread, a window kept neither.
  if s.used == 0 or not debt then return s end
  s.last, s.debt = math.max(s.start, last - math.max(0, seen - now)), debt
  return s
end

-- µs of open time per unit: the time left at the last slot over early and remaining units.
local function interval(s, l)
  local units = math.max(0, l.limit - s.used) + s.debt
  local even = units > 0 and service.between(l.service, s.last, s.finish) / units or 0
  return l.slowest and math.min(even, l.slowest) or even
end

local function earliest(s, l, cost)
  local at = math.max(s.now, s.start)
  if s.used == 0 or s.used + cost <= l.limit then
    local early = math.max(0, s.debt + math.min(cost, l.even) - l.even)
    at = service.after(l.service, math.max(at, service.after(l.service, s.last, bucket.ceil(early * interval(s, l)))), 0)
    if at < s.finish then return at - s.now end
  end
  return service.after(l.service, math.max(s.now, s.finish), 0) - s.now
end

local function charge(s, l, cost, offset)
  local at = s.now + math.ceil(offset)
  local passed = service.between(l.service, s.last, at)
  local each = passed > 0 and s.debt > 0 and interval(s, l) or 0
  if each > 0 then s.debt = math.max(0, s.debt - passed / each) end
  local start = s.start
  fixed_window.charge(s, l, cost, offset)
  if s.start ~= start or s.used == cost then s.debt = 0 end
  s.last, s.debt = math.max(at, s.start), s.debt + cost
end

local function take_back(s, l, cost, slot)
  if not fixed_window.take_back(s, l, cost, slot) then return false end
  if slot == s.last then s.debt = math.max(0, s.debt - cost) end
  return true
end

local function save(s, l)
  limit_state.store(s.key, fixed_window.lasts(s, l), s.now, s.start, s.used, s.last, s.debt)
end

return {
  open = open, earliest = earliest, charge = charge, adjust = fixed_window.adjust, take_back = take_back, save = save,
  view = fixed_window.view, window_of = fixed_window.window_of,
}
