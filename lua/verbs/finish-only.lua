--[[
  Finishes a job and fetches nothing: BullMQ's moveToFinished. If the job's lock is not the caller's, nothing is
  done and the end is left to lua/verbs/finish.lua.
  KEYS
    [1]      …:meta:shape: the keys of moveToFinished are made here, as in lua/verbs/finish-open.lua
  ARGV  those of moveToFinished, of which
    [1]      job id
    [2]      timestamp, ms
    [5]      completed or failed
    then
    [a + 1]  if the job is not kept, how long its end is remembered instead, ms; otherwise ''
    [a + 2]  '1' if BullMQ's script must not report 'drained' while delayed jobs follow
  Returns BullMQ's code; nil if the end is left. The same call sent twice finishes once.
]]
local move_to_finished = use 'bullmq/moveToFinished'
local finished = use 'ends/finished'
local without_fetch = use 'ends/without-fetch'

local a = #ARGV - 2
local base = string.sub(KEYS[1], 1, -11)

local hooked = ARGV[a + 2] == '1' and without_fetch.quiet(base) or redis
local code = move_to_finished.run(hooked, move_to_finished.keys(base, ARGV[1], ARGV[5]), ARGV)
if code < 0 then
  code = finished.code(code, base, base .. ARGV[5], ARGV[1], ARGV[2])
  return code ~= -2 and code
end
if ARGV[a + 1] ~= '' then finished.remember(base, ARGV[1], ARGV[2], ARGV[a + 1]) end
without_fetch.frees_place(base, 1)
return code
