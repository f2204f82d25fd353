--[[
  Starts up to k jobs whose slots lie within the horizon: BullMQ's moveToActive, repeated behind the gate.
  KEYS  those of moveToActive, then
    [k + 1]  …:meta:shape
  ARGV  those of moveToActive, of which
    [3]      BullMQ's options (token, lock duration, worker name)
    then
    [a + 1]  id of the shape that the caller knows, '' if none
    [a + 2]  its revision
    [a + 3]  jobs wanted, >= 1
    [a + 4]  horizon, µs; 0 for a stock worker, which sleeps by its own timers
    [a + 5]  id of this call: repeated with the same id, it grants the same jobs
    [a + 6]  worker id; with '' the grant is not remembered
    [a + 7]  '1' if jobs may leave although no shape is stored
    [a + 8]  how long the grant is remembered, ms
    [a + 9]  mean time from slot to end of the caller's jobs and mean deviation, 'mean off', µs; '' if unknown
    [a + 10] the longest horizon of a worker that the caller knows of, its own among them, µs; used after a loss of state
  Returns the reply of gate/departure.
]]
local move_to_active = use 'bullmq/moveToActive'
local departure = use 'gate/departure'
local grants = use 'gate/grants'
local as_text = use 'redis/as-text'

local k, a = #KEYS - 1, #ARGV - 10
local asked = tonumber(ARGV[a + 3])
local ran, off = string.match(ARGV[a + 9], '^(%d+) (%d+)$')
local d = departure.open({
  key = KEYS[k + 1], base = string.sub(KEYS[k + 1], 1, -11), shape_id = ARGV[a + 1], revision = ARGV[a + 2],
  horizon = tonumber(ARGV[a + 4]), longest = tonumber(ARGV[a + 10]), grant = ARGV[a + 5], caller = ARGV[a + 6],
  memo_ms = ARGV[a + 8],
  token = asked > 1 and cmsgpack.unpack(ARGV[3]).token,
  ran = ran and { tonumber(ran), tonumber(off) },
})
if d.lost then return { -1, as_text.us(d.now) } end

if not d.shape and ARGV[a + 7] ~= '1' then
  d.stop = 'unshaped'
  return departure.reply(d, 0, '')
end
local known = ARGV[a + 6] ~= '' and grants.may_be_kept(d.call.base, ARGV[a + 5])
if known and departure.replay(d) then return departure.reply_again(d, 0) end
while #d.granted < asked and departure.take(d, move_to_active.run(d.gate.redis, KEYS, ARGV)) do end
local asks = departure.settle(d, asked)
departure.save(d)
departure.remember(d)
return departure.reply(d, 0, asks)
