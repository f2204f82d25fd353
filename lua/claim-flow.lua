--[[
  Decides on a whole flow, over all its queues: the first command of the MULTI that adds it. Each add obeys the verdict.
  KEYS
    [1]      key of the verdict, which the last command of the MULTI deletes
    [2…]     …:meta:shape of each queue
  ARGV
    [1]      how long the verdict lives if that command never comes, ms
    then for each queue: born, rev, highest cost, number of jobs, and for each job its id or '' and its deduplication id or ''
  Returns the answer of lib/admission, then 3 the number of the queue (from 1) that refused.
]]
--- @include "lib/admission"
local now = redis_now()

local function refusal_of(i, at)
  local key = KEYS[i]
  local base = string.sub(key, 1, -11)
  local shape = shape_load(key, base, now)
  if shape_lost(shape, ARGV[at], ARGV[at + 1]) then return { -1, {} } end
  if not shape then return nil end
  local new, seen = 0, {}
  for job = at + 4, at + 3 + 2 * tonumber(ARGV[at + 3]), 2 do
    if admission_is_new(base, ARGV[job], ARGV[job + 1], seen) then new = new + 1 end
  end
  return admission_cost_error(shape, tonumber(ARGV[at + 2])) or admission_refusal(base, shape, now, new)
end

local at = 2
for i = 2, #KEYS do
  local refusal = refusal_of(i, at)
  if refusal then
    refusal[3] = i - 1
    return refusal
  end
  at = at + 4 + 2 * tonumber(ARGV[at + 3])
end
redis.call('SET', KEYS[1], 'ok', 'PX', ARGV[1])
return { 1, {} }
