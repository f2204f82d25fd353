--[[
  Admits one job or refuses it: the bound is checked, then BullMQ's own add script runs.
  KEYS  those of the add script, then
    [k + 1]  …:meta:shape
  ARGV  those of the add script, then
    [a + 1]  'born:rev' of the shape that the caller knows, '' if none
    [a + 2]  the job, JSON: [cost, id or '' if BullMQ is to number it, deduplication id or '', job scheduler id or ''
             (iterations of one that exists are never refused), its terms (lib/terms), 1 to tell the position and the
             estimated start, 2 if it has a deadline, 3 for both, 4 to tell at least the position, or 0]
  Returns BullMQ's reply if there was nothing to decide, after the position or '' and a space if the sixth is 4;
    else the reply of lib/admission, then 3 BullMQ's reply,
    4 now µs, 5 position or '', 6 start µs or '', 7 born, 8 rev, 9 news: the shape, if the caller knows another.
]]
--- @include "lib/delay-clock"
--- @include "lib/fits"
local k, a = #KEYS - 1, #ARGV - 2
local key, base = KEYS[k + 1], string.sub(KEYS[k + 1], 1, -11)

local function add_job()
  --- @original
end

local asked = string.sub(ARGV[a + 2], -2)
-- The script for delayed jobs has six keys: a delayed job may have to wake a worker.
if k ~= 6 and (asked == '0]' or asked == '4]') and fits_surely(key, base, ARGV[a + 1], ARGV[a + 2]) then
  local reply = add_job()
  if type(reply) == 'table' then return { 1, {}, reply } end
  if asked == '0]' or type(reply) == 'number' then return reply end
  local is_last = redis.call('LINDEX', base .. 'wait', 0) == reply
  return (is_last and redis.call('LLEN', base .. 'wait') - 1 or '') .. ' ' .. reply
end

--- @include "lib/admission"
--- @include "lib/estimate"
--- @include "lib/overflow"
--- @include "lib/sleepers"
local now = redis_now()
local born, rev = identity_parts(ARGV[a + 1])
local job = cjson.decode(ARGV[a + 2])
local cost, id, deduplication_id, scheduler_id = job[1], job[2], job[3], job[4]
local shape = shape_load(key, base, now)
if shape_lost(shape, born, rev) then return { -1, {} } end
local function refused(refusal)
  refusal[7], refusal[8] = shape and shape.born or '', shape and shape.rev or ''
  for i = 3, 6 do refusal[i] = '' end
  refusal[9] = shape and shape_news(key, shape, born, rev) or false
  return refusal
end

local terms = terms_read(job[5])
local missed = scheduler_id == '' and admission_deadline_error(now, terms)
if missed then return refused(missed) end
local gone
if shape then
  local known = scheduler_id ~= '' and redis.call('ZSCORE', base .. 'repeat', scheduler_id)
  local refusal
  if not known and admission_is_new(base, id, deduplication_id, {}) then
    refusal = admission_cost_error(shape, cost)
    if not refusal then
      local new = { { cost = cost, terms = terms } }
      refusal, gone = admission_refusal(base, shape, now, new, overflow_choose, scheduler_id == '')
    end
  end
  if refusal then return refused(refusal) end
end
local reply = add_job()
-- A negative number is BullMQ's refusal.
if gone and type(reply) ~= 'number' then overflow_drop(base, shape, gone, now) end
if shape and (shape.interval or shape.limits) then sleepers_expect_delayed(base, now) end
local position, start = '', ''
if (job[6] % 2 == 1 or job[6] == 4) and type(reply) == 'string' then position, start = estimate_start(base, shape, now, reply) end
return {
  1, {}, reply, us_text(now), position, start, shape and shape.born or '', shape and shape.rev or '',
  shape and shape_news(key, shape, born, rev) or false,
}
