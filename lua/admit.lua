--[[
  Lets one job in, or refuses it: the bound is checked, then BullMQ's own add script runs.
  KEYS  those of the add script, then
    [k + 1]  …:meta:shape
  ARGV  those of the add script, then
    [a + 1]  born of the shape that the caller knows, '' if none
    [a + 2]  its rev
    [a + 3]  cost of the job
    [a + 4]  job id, '' if BullMQ is to number it
    [a + 5]  deduplication id or ''
    [a + 6]  job scheduler id or '': iterations of one that exists are never refused
    [a + 7]  '1' to tell the position and the estimated start as well
  Returns BullMQ's reply where there was nothing to decide, else the answer of lib/admission, then 3 BullMQ's reply,
    4 now µs, 5 position or '', 6 start µs or '', 7 born, 8 rev, 9 news: the shape, where the caller knows another.
]]
--- @include "lib/clock"
--- @include "lib/quick"
local k, a = #KEYS - 1, #ARGV - 7
local key, base = KEYS[k + 1], string.sub(KEYS[k + 1], 1, -11)

local function add_job()
  --- @original
end

-- The script for delayed jobs has six keys: such a job may have to wake a worker.
if k ~= 6 and ARGV[a + 7] == '0'
  and quick_admission(key, base, ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3])) then
  local reply = add_job()
  return type(reply) == 'table' and { 1, {}, reply } or reply
end

--- @include "lib/admission"
--- @include "lib/estimate"
--- @include "lib/sleepers"
local now = redis_now()
local shape = shape_load(key, base, now)
if shape_lost(shape, ARGV[a + 1], ARGV[a + 2]) then return { -1, {} } end
if shape then
  local known = ARGV[a + 6] ~= '' and redis.call('ZSCORE', base .. 'repeat', ARGV[a + 6])
  local new = not known and admission_is_new(base, ARGV[a + 4], ARGV[a + 5], {}) and 1 or 0
  local refusal = new > 0
    and (admission_cost_error(shape, tonumber(ARGV[a + 3])) or admission_refusal(base, shape, now, new))
  if refusal then
    refusal[7], refusal[8] = shape.born, shape.rev
    for i = 3, 6 do refusal[i] = '' end
    refusal[9] = shape_news(key, shape, ARGV[a + 1], ARGV[a + 2])
    return refusal
  end
end
local reply = add_job()
if shape and shape.interval then sleepers_expect_delayed(base, now) end
local position, start = '', ''
if ARGV[a + 7] == '1' and type(reply) == 'string' then position, start = estimate_start(base, shape, now, reply) end
return {
  1, {}, reply, us_text(now), position, start, shape and shape.born or '', shape and shape.rev or '',
  shape and shape_news(key, shape, ARGV[a + 1], ARGV[a + 2]) or false,
}
