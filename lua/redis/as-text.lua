local as_text = {}

-- A microsecond timestamp as text: tostring() and .. keep only 14 digits of a number.
function as_text.us(us)
  return string.format('%.0f', us)
end

-- A number as text that reads back as the same number.
function as_text.exact(number)
  return string.format('%.17g', number)
end

return as_text
