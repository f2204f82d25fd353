--[[
  Admits a job that certainly fits: only BullMQ's own add script runs. If it might not fit, nothing is done:
  lua/verbs/admit.lua handles it.
  KEYS
    [1]  …:meta:shape: the keys of the add script are made here, since fewer are sent and read faster
  ARGV  the three of the add script
    [3]  of these, the options of the job; then
    [4]  the field `fits` of the shape that the caller knows, '' if it knows none
    [5]  the cost of the job, 1 if it is left out
    [6]  '1' to return its position; it may be left out
  Returns BullMQ's reply, after the position or '' and a space if that is asked for; nil if the job might not fit.
]]
local fits_surely = use 'admission/fits-surely'
local original = use 'bullmq/original'
local touched = use 'gate/touched'
local wake = use 'gate/wake'

local base = string.sub(KEYS[1], 1, -11)

local fits, timed, waiting = fits_surely(KEYS[1], base, ARGV[4], 1, tonumber(ARGV[5]) or 1)
if not fits then return false end
local reply = original.run(redis, original.keys(base), ARGV)
if next(touched.bases) then touched.wake() end
-- Behind others only a job that is `lifo` may be the next one.
if timed and (waiting or 0) > 0 then timed = string.find(ARGV[3], 'lifo', 1, true) end
if timed and wake.heads(base, {})[1] == reply then wake.head_changed(base) end
if ARGV[6] ~= '1' or type(reply) == 'number' then return reply end
local is_last = redis.call('LINDEX', base .. 'wait', 0) == reply
return (is_last and redis.call('LLEN', base .. 'wait') - 1 or '') .. ' ' .. reply
