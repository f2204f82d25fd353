--[[
  Finishes the jobs that ended in one tick of a worker and starts as many: BullMQ's moveToFinished for each, every one
  under pcall with a reply of its own, then its moveToActive behind the gate.
  KEYS
    [1]  wait  [2] active  [3] prioritized  [4] events  [5] stalled  [6] limiter  [7] delayed  [8] paused  [9] meta
    [10] pc  [11] marker  [12] …:meta:shape
  ARGV
    [1]  born of the shape that the caller knows, '' if none
    [2]  its rev
    [3]  jobs wanted; 0: only finish
    [4]  horizon, µs
    [5]  id of this call
    [6]  worker id; '' and the grant is not remembered
    [7]  how long a grant is remembered, ms
    [8]  '1' if jobs may leave although no shape is stored
    [9]  key prefix
    [10] timestamp of the fetch, ms
    [11] BullMQ's options of the fetch (token, lock duration, worker name)
    then eight for each job that ended: id, timestamp, field of its result, result, completed or failed, BullMQ's options,
    fields to update or '', '1' if the job is not kept
  Returns the answer of lib/departure, result being a list: for each job BullMQ's code, or the text of an error.
  The same call sent twice finishes once.
]]
--- @include "lib/departure"
--- @include "lib/finished"
local FIELDS, FIRST = 8, 12
local keys, argv = {}, {}
for i = 1, 12 do keys[i] = KEYS[i] end
for i = 1, #ARGV do argv[i] = ARGV[i] end
local base = string.sub(keys[12], 1, -11)

local function move_to_finished()
  --- @original moveToFinished
end

-- moveToFinished has the job's own keys at 11 to 13, where moveToActive has none but the marker.
local function finish(at)
  local id, timestamp, target = argv[at], argv[at + 1], argv[at + 4]
  KEYS[11], KEYS[12], KEYS[13], KEYS[14] = base .. target, base .. id, base .. 'metrics:' .. target, keys[11]
  for i = 0, 4 do ARGV[i + 1] = argv[at + i] end
  ARGV[6], ARGV[7], ARGV[8], ARGV[9] = '0', argv[9], argv[at + 5], argv[at + 6]
  local done, code = pcall(move_to_finished)
  if not done then return type(code) == 'table' and code.err or tostring(code) end
  local memory = base .. 'meta:finished:' .. id
  if code < 0 and finished_before(KEYS[12], KEYS[11], memory, id, timestamp) then return 0 end
  if code == 0 and argv[at + 7] == '1' then redis.call('SET', memory, timestamp, 'PX', argv[7]) end
  return code
end

local codes = {}
for at = FIRST, #argv, FIELDS do codes[#codes + 1] = finish(at) end
local asked = tonumber(argv[3])
if asked == 0 then
  finished_frees_place(base)
  return { 1, '', codes }
end

local d = departure_open({
  key = keys[12], base = base, born = argv[1], rev = argv[2], horizon = tonumber(argv[4]), grant = argv[5],
  caller = argv[6], memo_ms = argv[7], client_ms = tonumber(argv[10]),
})
if d.lost then return { -1, us_text(d.now), codes } end
if not d.shape and argv[8] ~= '1' then
  d.stop = 'unshaped'
  return departure_answer(d, codes, '')
end
for i = 1, 11 do KEYS[i] = keys[i] end
ARGV[1], ARGV[2], ARGV[3] = argv[9], argv[10], argv[11]

local function move_to_active()
  local redis = d.gate.redis
  --- @original moveToActive
end

if departure_repeat(d) then return departure_answer(d, codes, '') end
while #d.granted < asked and departure_take(d, move_to_active()) do end
local wake = departure_settle(d, asked)
departure_save(d)
departure_remember(d)
return departure_answer(d, codes, wake)
