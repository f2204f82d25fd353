--[[
  Admits a job that certainly fits: only BullMQ's own add script runs. If it might not fit, nothing is done:
  lua/admit.lua handles it.
  KEYS  those of the add script, then
    [k + 1]  …:meta:shape
  ARGV  those of the add script, then
    [a + 1]  'id:revision' of the shape that the caller knows, '' if none
    [a + 2]  the cost of the job
    [a + 3]  '1' to return its position
  Returns BullMQ's reply, after the position or '' and a space if that is asked for; nil if the job might not fit.
]]
--- @include "lib/delay-clock"
--- @include "lib/fits"
local k, a = #KEYS - 1, #ARGV - 3
local base = string.sub(KEYS[k + 1], 1, -11)

local function add_job()
  --- @original
end

if not fits_surely(KEYS[k + 1], base, ARGV[a + 1], 1, tonumber(ARGV[a + 2])) then return false end
local reply = add_job()
if ARGV[a + 3] ~= '1' or type(reply) == 'number' then return reply end
local is_last = redis.call('LINDEX', base .. 'wait', 0) == reply
return (is_last and redis.call('LLEN', base .. 'wait') - 1 or '') .. ' ' .. reply
