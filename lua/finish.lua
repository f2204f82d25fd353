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
local k, a = #KEYS - 1, #ARGV - 3

local function move_to_finished(redis)
  --- @original
end

-- Where no shape is stored, or one that lets every job leave now, there is nothing to decide. That is found out before
-- the rest of this script is set up: its functions alone would cost more than BullMQ's work.
local reply, open
if ARGV[6] == '1' then
  local f = redis.call('HMGET', KEYS[k + 1], 'born', 'rev', 'interval', 'pausedUntil', 'expires')
  if not f[1] then open = ARGV[a + 1] == ''
  else open = not (f[3] or f[4] or f[5]) and f[1] .. ':' .. f[2] == ARGV[a + 1] end
  if open then
    reply = move_to_finished(redis)
    if not f[1] and type(reply) == 'table' and type(reply[1]) == 'table' then
      local time = redis.call('TIME')
      local now = string.format('%.0f', time[1] * 1000000 + time[2])
      return { 1, now, 0, { { reply[1], reply[2], now, '1', '0', '' } }, 'full', '', '', 0, 0 }
    end
  end
end

--- @include "lib/clock"
--- @include "lib/finished"
--- @include "lib/quick"
local base = string.sub(KEYS[k + 1], 1, -11)
local horizon, memo_ms, remembers, discarded = string.match(ARGV[a + 3], '^(%d+) (%d+) (%d) (%d)$')
local caller = remembers == '1' and string.match(ARGV[a + 2], '^(.*):%d+$') or ''
local memory = base .. 'meta:finished:' .. ARGV[1]

-- BullMQ's code, with a second sending of the same call taken for what it is.
local function finish_code()
  local code = type(reply) == 'table' and 0 or reply
  if code < 0 and finished_before(KEYS[12], KEYS[11], memory, ARGV[1], ARGV[2]) then return 0, true end
  if code == 0 and discarded == '1' then redis.call('SET', memory, ARGV[2], 'PX', memo_ms) end
  return code, false
end

if ARGV[6] ~= '1' then
  reply = move_to_finished(redis)
  local code = finish_code()
  if code == 0 then finished_frees_place(base) end
  return { 1, '', code }
end
local code, again
if open then
  code, again = finish_code()
  if ARGV[a + 1] == '' or not again then
    local now = redis_now()
    if ARGV[a + 1] ~= '' then quick_remember(base, reply, now, ARGV[a + 2], caller, memo_ms) end
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
  code, again = finish_code()
end
if d.lost then return { -1, us_text(d.now), code } end
if again then departure_repeat(d) elseif code == 0 then departure_take(d, reply) end
local wake = departure_settle(d, 1)
departure_save(d)
departure_remember(d)
return departure_answer(d, code, wake)
