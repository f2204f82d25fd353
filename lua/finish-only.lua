--[[
  Finishes a job and fetches nothing: BullMQ's moveToFinished. If the job's lock is not the caller's, nothing is
  done and the end is left to lua/finish.lua.
  KEYS  those of moveToFinished, of which
    [11]     the set of finished jobs
    then
    [k + 1]  …:meta:shape
  ARGV  those of moveToFinished, of which
    [1]      job id
    [2]      timestamp, ms
    then
    [a + 1]  '1' if the job is not kept (then its end is remembered instead)
    [a + 2]  how long, ms
    [a + 3]  '1' if BullMQ's script must not report 'drained' while delayed jobs follow
  Returns BullMQ's code; nil if the end is left. The same call sent twice finishes once.
]]
--- @include "lib/delay-clock"
--- @include "lib/finished"
--- @include "lib/without-fetch"
local k, a = #KEYS - 1, #ARGV - 3
local base = string.sub(KEYS[k + 1], 1, -11)

local function end_job(redis)
  --- @original
end

local code = end_job(ARGV[a + 3] == '1' and without_fetch.quiet(base) or redis)
if code < 0 then
  code = finished_code(code, base, KEYS[11], ARGV[1], ARGV[2])
  return code ~= -2 and code
end
if ARGV[a + 1] == '1' then finished_remember(base, ARGV[1], ARGV[2], ARGV[a + 2]) end
without_fetch.frees_place(base, 1)
return code
