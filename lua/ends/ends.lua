local move_to_finished = use 'bullmq/moveToFinished'
local fetched_before = use 'ends/fetched-before'
local fetched_size = use 'ends/fetched-size'
local finished = use 'ends/finished'
local quick_path = use 'ends/quick-path'
local relock = use 'ends/relock'
local without_fetch = use 'ends/without-fetch'

--- @call
-- The ends of the jobs that a worker exchanges (lua/verbs/exchange.lua): BullMQ's moveToFinished for each.
--   argv, base, memo_ms   of the call
--   count, wanted   how many jobs end, and how many are wanted in their places
--   kinds     the parsed kinds, by their text: most jobs of a call are of one kind
--   results   as they are returned, so far
--   last      the last reply of a fetch; dry: once no job was found, or enough were (ends/fetched-size), none is looked for
--   found     how many jobs were fetched when an end was first sent
--   repeated, remembered   whether an end was sent before, and whether the grant of this call is remembered for that reason
--   unseen    the jobs that ended without looking for another
--   unasked   how many ends were to look for a job and did not, since BullMQ's script refused them
local ends = {
  FIRST = 7, FIELDS = 6, args = {}, kinds = {}, results = {}, unseen = {}, found = 0, unasked = 0, dry = false,
  repeated = false, remembered = false, last = nil, quiet = nil, base = '', argv = nil, keys = nil, memo_ms = '', count = 0,
  wanted = 0,
}

-- Parses a kind, the last of a job's arguments.
function ends.kind(text)
  local kind = ends.kinds[text]
  if kind then return kind end
  local target, field, discarded, wants = string.match(text, '^(%a+) (%a+) (%d) (%d)$')
  kind = {
    target = target, field = field, set = ends.base .. target, metrics = ends.base .. 'metrics:' .. target,
    discarded = discarded == '1', wants = wants == '1',
  }
  ends.kinds[text] = kind
  return kind
end

function ends.begin(base, argv, memo_ms)
  ends.base, ends.argv, ends.memo_ms = base, argv, memo_ms
  ends.keys, ends.args[7] = move_to_finished.keys(base, '', ''), base
  ends.count, ends.wanted = (#argv - ends.FIRST + 1) / ends.FIELDS, 0
  for at = ends.FIRST, #argv, ends.FIELDS do
    if ends.kind(argv[at + 5]).wants then ends.wanted = ends.wanted + 1 end
  end
end

-- BullMQ's reply to the end of the job whose arguments begin at `at`.
function ends.run(at, fetch, redis)
  local argv, keys, args = ends.argv, ends.keys, ends.args
  local kind = ends.kind(argv[at + 5])
  keys[11], keys[12], keys[13] = kind.set, ends.base .. argv[at], kind.metrics
  args[1], args[2], args[3], args[4], args[5] = argv[at], argv[at + 1], kind.field, argv[at + 2], kind.target
  args[6], args[8], args[9] = fetch and '1' or '0', argv[at + 3], argv[at + 4]
  return move_to_finished.run(redis, keys, args)
end

function ends.run_locked(at, fetch, redis)
  if not fetch then
    ends.quiet = ends.quiet or without_fetch.quiet(ends.base)
    redis = ends.quiet
  end
  local reply = ends.run(at, fetch, redis)
  if reply ~= -2 then return reply end
  local locked = relock(ends.base, ends.argv[at], cmsgpack.unpack(ends.argv[at + 3]).token)
  return locked and ends.run(at, fetch, redis) or reply
end

-- The result of an end that BullMQ's script refused, which it does as well if the end was sent before.
function ends.refused(at, kind, reply)
  local id, ended = ends.argv[at], ends.argv[at + 1]
  local code, again = finished.code(reply, ends.base, kind.set, id, ended)
  if not again then return code end
  ends.repeated = true
  local before = kind.wants and not ends.remembered and fetched_before(ends.base, ends.argv[at + 3], ended)
  if before then ends.found = ends.found + 1 end
  return before or code
end

-- Ends the job whose arguments begin at `at`. Returns its result and, if it looked for another, BullMQ's reply.
function ends.finish(at, fetches, redis)
  local argv, base = ends.argv, ends.base
  local id, ended, kind = argv[at], argv[at + 1], ends.kind(argv[at + 5])
  local fetch = fetches and kind.wants and not ends.dry
  local done, reply = pcall(ends.run_locked, at, fetch, redis)
  if not done then return type(reply) == 'table' and reply.err or tostring(reply) end
  if type(reply) == 'number' and reply < 0 then return ends.refused(at, kind, reply) end
  if kind.discarded then finished.remember(base, id, ended, ends.memo_ms) end
  if not fetch then ends.unseen[#ends.unseen + 1] = id end
  return 0, fetch and reply
end

-- The same where the end fetches the next job without the gate. Returns BullMQ's tuple with that job; nil if none came.
function ends.exchange(at, redis)
  local wants = ends.kind(ends.argv[at + 5]).wants and not ends.dry
  local result, reply = ends.finish(at, true, redis)
  local fetched = reply and quick_path.fetched(reply)
  if reply then
    ends.last = reply
    -- A lone end looks for no more.
    ends.dry = not fetched or (ends.count > 1 and fetched_size.is_enough(reply[1]))
    if fetched then result = reply end
  elseif wants and type(result) ~= 'table' then
    ends.unasked = ends.unasked + 1
  end
  ends.results[#ends.results + 1] = result
  return fetched and reply or nil
end

return ends
