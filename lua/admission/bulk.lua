local add_delayed_job = use 'bullmq/addDelayedJob'
local add_prioritized_job = use 'bullmq/addPrioritizedJob'
local add_standard_job = use 'bullmq/addStandardJob'

-- BullMQ's add scripts by kind, for scripts that add many jobs: their keys are those of lua/verbs/admit-bulk.lua.
--   bulk.redis    what replaces `redis` for them, if anything; set before the first job
local bulk = {
  scripts = {}, keys = {}, args = {}, kind = nil,
  keys_of = {
    standard = { 1, 2, 3, 4, 5, 6, 7, 8, 9 },
    prioritized = { 9, 3, 4, 10, 6, 5, 7, 8, 11 },
    delayed = { 9, 3, 4, 6, 5, 8 },
  },
}

function bulk.scripts.standard(...) return add_standard_job.run(...) end
function bulk.scripts.prioritized(...) return add_prioritized_job.run(...) end
function bulk.scripts.delayed(...) return add_delayed_job.run(...) end

-- Adds a job of this kind, whose three arguments for BullMQ begin at argv[at].
function bulk.add_as(kind, keys, argv, at)
  if kind ~= bulk.kind then
    for i, from in ipairs(bulk.keys_of[kind]) do bulk.keys[i] = keys[from] end
    bulk.kind = kind
  end
  bulk.args[1], bulk.args[2], bulk.args[3] = argv[at], argv[at + 1], argv[at + 2]
  return bulk.scripts[kind](bulk.redis or redis, bulk.keys, bulk.args)
end

-- Adds the job whose kind is argv[at], followed by BullMQ's three arguments.
function bulk.add(keys, argv, at)
  return bulk.add_as(argv[at], keys, argv, at + 1)
end

return bulk
