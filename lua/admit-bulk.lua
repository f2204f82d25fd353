--[[
  Lets many jobs in, or none: the bound is checked once, then BullMQ's own add script runs for each.
  KEYS
    [1]  wait  [2] paused  [3] meta  [4] id  [5] completed  [6] delayed  [7] active  [8] events  [9] marker
    [10] prioritized  [11] pc  [12] …:meta:shape
  ARGV
    [1]  born of the shape that the caller knows, '' if none
    [2]  its rev
    [3]  id of a claim (claim-places) that the places come out of, or ''
    [4]  its lease from now on, ms
    then seven for each job: kind (standard, prioritized, delayed), BullMQ's three arguments, job id or '',
    deduplication id or '', cost
  Returns the answer of lib/admission, then 3 BullMQ's replies, 4 born, 5 rev, 6 news.
]]
--- @include "lib/admission"
--- @include "lib/claims"
--- @include "lib/sleepers"
local FIELDS = 7
local keys, argv = {}, {}
for i = 1, 12 do keys[i] = KEYS[i] end
for i = 1, #ARGV do argv[i] = ARGV[i] end
local base = string.sub(keys[12], 1, -11)

local add = {}
function add.standard()
  --- @original addStandardJob
end
function add.prioritized()
  --- @original addPrioritizedJob
end
function add.delayed()
  --- @original addDelayedJob
end
local KEYS_OF = {
  standard = { 1, 2, 3, 4, 5, 6, 7, 8, 9 },
  prioritized = { 9, 3, 4, 10, 6, 5, 7, 8, 11 },
  delayed = { 9, 3, 4, 6, 5, 8 },
}

local function add_job(at)
  local kind = argv[at]
  for i, from in ipairs(KEYS_OF[kind]) do KEYS[i] = keys[from] end
  for i = 1, 3 do ARGV[i] = argv[at + i] end
  return add[kind]()
end

local now = redis_now()
local shape = shape_load(keys[12], base, now)
if shape_lost(shape, argv[1], argv[2]) then return { -1, {} } end
if shape then
  local new, seen = 0, {}
  for at = 5, #argv, FIELDS do
    if admission_is_new(base, argv[at + 4], argv[at + 5], seen) then
      new = new + 1
      local refusal = admission_cost_error(shape, tonumber(argv[at + 6]))
      if refusal then return refusal end
    end
  end
  -- A claim whose lease is over covers nothing any more.
  local uncovered = argv[3] == '' and new or new - claims_use(keys[12], base, argv[3], new, now, tonumber(argv[4]))
  local refusal = uncovered > 0 and admission_refusal(base, shape, now, uncovered)
  if refusal then return refusal end
end
local replies = {}
for at = 5, #argv, FIELDS do replies[#replies + 1] = add_job(at) end
if shape and shape.interval then sleepers_expect_delayed(base, now) end
return {
  1, {}, replies, shape and shape.born or '', shape and shape.rev or '',
  shape and shape_news(keys[12], shape, argv[1], argv[2]) or false,
}
