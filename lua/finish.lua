--[[
  Finishes a job and, if asked to, starts the next one: BullMQ's moveToFinished, its fetch behind the gate.
  KEYS  those of moveToFinished, of which
    [11]     the set of finished jobs
    [12]     the job
    then
    [k + 1]  …:meta:shape
  ARGV  those of moveToFinished, of which
    [1]      job id
    [2]      timestamp, ms
    [6]      '1' to fetch the next job
    then
    [a + 1]  'born:rev' of the shape that the caller knows, '' if none
    [a + 2]  id of this call: the worker's id, a colon and a number
    [a + 3]  four numbers: horizon (µs; 0 for a stock worker, which sleeps by its own timers), how long a grant is
             remembered (ms), 1 if it is to be remembered, 1 if the job is not kept: then its end is remembered instead
  Returns the answer of lib/departure, result being BullMQ's code; the first three of it where nothing was to be
  fetched, the first nine where no shape is stored.
  The same call sent twice finishes once.
]]
--- @include "lib/clock"
--- @include "lib/text"
--- @include "lib/finished"
--- @include "lib/quick"
local k, a = #KEYS - 1, #ARGV - 3
local base = string.sub(KEYS[k + 1], 1, -11)
local horizon, memo_ms, remembers, discarded = string.match(ARGV[a + 3], '^(%d+) (%d+) (%d) (%d)$')
local caller = remembers == '1' and string.match(ARGV[a + 2], '^(.*):%d+$') or ''
local memory = base .. 'meta:finished:' .. ARGV[1]

local function move_to_finished(redis)
  --- @original
end

-- BullMQ's code, with a second sending of the same call taken for what it is.
local function finish_code(reply)
  local code = type(reply) == 'table' and 0 or reply
  if code < 0 and finished_before(KEYS[12], KEYS[11], memory, ARGV[1], ARGV[2]) then return 0, true end
  if code == 0 and discarded == '1' then redis.call('SET', memory, ARGV[2], 'PX', memo_ms) end
  return code, false
end

if ARGV[6] ~= '1' then
  local code = finish_code(move_to_finished(redis))
  if code == 0 then finished_frees_place(base) end
  return { 1, '', code }
end
local reply, code, again
local quick = quick_departure(KEYS[k + 1], ARGV[a + 1])
if quick then
  reply = move_to_finished(redis)
  code, again = finish_code(reply)
  if quick == 'none' or not again then
    local now = redis_now()
    if quick == 'open' then quick_remember(base, reply, now, ARGV[a + 2], caller, memo_ms) end
    return { 1, us_text(now), code, quick_answer(base, reply, us_text(now)) }
  end
end

--- @include "lib/departure"
local born, rev = identity_parts(ARGV[a + 1])
local d = departure_open({
  key = KEYS[k + 1], base = base, born = born, rev = rev, horizon = tonumber(horizon), grant = ARGV[a + 2],
  caller = caller, memo_ms = memo_ms, client_ms = tonumber(ARGV[2]),
})
if d.lost then ARGV[6] = '0' end
if not again then
  reply = move_to_finished(d.lost and redis or d.gate.redis)
  code, again = finish_code(reply)
end
if d.lost then return { -1, us_text(d.now), code } end
if again then departure_repeat(d) elseif code == 0 then departure_take(d, reply) end
local wake = departure_settle(d, 1)
departure_save(d)
departure_remember(d)
return departure_answer(d, code, wake)
