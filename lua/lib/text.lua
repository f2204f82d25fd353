-- A microsecond timestamp as text: tostring() and .. keep only 14 digits of a number.
local function us_text(us)
  return string.format('%.0f', us)
end

-- A number as text that reads back as the same number.
local function exact_text(number)
  return string.format('%.17g', number)
end

-- The two parts of a shape's identity 'id:revision', each '' if the caller knows no shape.
local function identity_parts(identity)
  local shape_id, revision = string.match(identity, '^(%d+):(%d+)$')
  return shape_id or '', revision or ''
end
