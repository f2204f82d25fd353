local move_to_finished = use 'bullmq/moveToFinished'
local exchanged = use 'ends/exchanged'
local fetched_before = use 'ends/fetched-before'
local fetched_size = use 'ends/fetched-size'
local finished = use 'ends/finished'
local end_kind = use 'ends/kind'
local quick_path = use 'ends/quick-path'
local relock = use 'ends/relock'
local without_fetch = use 'ends/without-fetch'

-- The ends of the jobs that a worker exchanges (lua/verbs/exchange.lua): BullMQ's moveToFinished for each.
local ends = { FIRST = 7, FIELDS = 6 }

function ends.begin(base, argv, memo_ms)
  exchanged.base, exchanged.argv, exchanged.memo_ms = base, argv, memo_ms
  exchanged.keys, exchanged.args[7] = move_to_finished.keys(base, '', ''), base
  exchanged.count, exchanged.wanted = (#argv - ends.FIRST + 1) / ends.FIELDS, 0
  for at = ends.FIRST, #argv, ends.FIELDS do
    if end_kind(argv[at + 5]).wants then exchanged.wanted = exchanged.wanted + 1 end
  end
end

-- BullMQ's reply to the end of the job whose arguments begin at `at`.
function ends.run(at, fetch, redis)
  local argv, keys, args = exchanged.argv, exchanged.keys, exchanged.args
  local kind = end_kind(argv[at + 5])
  keys[11], keys[12] = exchanged.base .. kind.target, exchanged.base .. argv[at]
  keys[13] = exchanged.base .. 'metrics:' .. kind.target
  args[1], args[2], args[3], args[4], args[5] = argv[at], argv[at + 1], kind.field, argv[at + 2], kind.target
  args[6], args[8], args[9] = fetch and '1' or '0', argv[at + 3], argv[at + 4]
  return move_to_finished.run(redis, keys, args)
end

function ends.run_locked(at, fetch, redis)
  if not fetch then
    exchanged.quiet = exchanged.quiet or without_fetch.quiet(exchanged.base)
    redis = exchanged.quiet
  end
  local reply = ends.run(at, fetch, redis)
  if reply ~= -2 then return reply end
  local locked = relock(exchanged.base, exchanged.argv[at], cmsgpack.unpack(exchanged.argv[at + 3]).token)
  return locked and ends.run(at, fetch, redis) or reply
end

-- The result of an end that BullMQ's script refused, which it does as well if the end was sent before.
function ends.refused(at, kind, reply)
  local id, ended = exchanged.argv[at], exchanged.argv[at + 1]
  local code, again = finished.code(reply, exchanged.base, exchanged.base .. kind.target, id, ended)
  if not again then return code end
  exchanged.repeated = true
  local before = kind.wants and not exchanged.remembered and fetched_before(exchanged.base, exchanged.argv[at + 3], ended)
  if before then exchanged.found = exchanged.found + 1 end
  return before or code
end

-- Ends the job whose arguments begin at `at`. Returns its result and, if it looked for another, BullMQ's reply.
function ends.finish(at, fetches, redis)
  local argv, base = exchanged.argv, exchanged.base
  local id, ended, kind = argv[at], argv[at + 1], end_kind(argv[at + 5])
  local fetch = fetches and kind.wants and not exchanged.dry
  local done, reply = pcall(ends.run_locked, at, fetch, redis)
  if not done then return type(reply) == 'table' and reply.err or tostring(reply) end
  if type(reply) == 'number' and reply < 0 then return ends.refused(at, kind, reply) end
  if kind.discarded then finished.remember(base, id, ended, exchanged.memo_ms) end
  if not fetch then exchanged.unseen[#exchanged.unseen + 1] = id end
  return 0, fetch and reply
end

-- The same where the end fetches the next job without the gate. Returns BullMQ's tuple with that job; nil if none came.
function ends.exchange(at, redis)
  local wants = end_kind(exchanged.argv[at + 5]).wants and not exchanged.dry
  local result, reply = ends.finish(at, true, redis)
  local fetched = reply and quick_path.fetched(reply)
  if reply then
    exchanged.last = reply
    -- A lone end looks for no more.
    exchanged.dry = not fetched or (exchanged.count > 1 and fetched_size.is_enough(reply[1]))
    if fetched then result = reply end
  elseif wants and type(result) ~= 'table' then
    exchanged.unasked = exchanged.unasked + 1
  end
  exchanged.results[#exchanged.results + 1] = result
  return fetched and reply or nil
end

return ends
