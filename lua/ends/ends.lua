local move_to_finished = use 'bullmq/moveToFinished'

--- @call
-- The ends of jobs, for scripts that finish many: BullMQ's moveToFinished for each. Their keys are those of
-- lua/verbs/finish-batch.lua.
--   ends.kinds    the parsed kinds, by their text: most jobs of a batch are of one kind
local ends = { FIELDS = 6, keys = {}, args = {}, kinds = {} }

function ends.begin(keys, prefix)
  for i = 1, 10 do ends.keys[i] = keys[i] end
  ends.keys[14], ends.args[7] = keys[11], prefix
  ends.base = string.sub(keys[12], 1, -11)
end

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

-- For how many of the jobs a next one is wanted.
function ends.wanted(argv, first)
  local wanted = 0
  for at = first, #argv, ends.FIELDS do
    if ends.kind(argv[at + 5]).wants then wanted = wanted + 1 end
  end
  return wanted
end

-- Finishes the job whose arguments begin at argv[at]. Returns BullMQ's reply.
function ends.finish(argv, at, fetch, redis)
  local keys, args, kind = ends.keys, ends.args, ends.kind(argv[at + 5])
  keys[11], keys[12], keys[13] = kind.set, ends.base .. argv[at], kind.metrics
  args[1], args[2], args[3], args[4], args[5] = argv[at], argv[at + 1], kind.field, argv[at + 2], kind.target
  args[6], args[8], args[9] = fetch and '1' or '0', argv[at + 3], argv[at + 4]
  return move_to_finished.run(redis, keys, args)
end

return ends
